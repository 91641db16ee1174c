"""What is written in a cell of a heat map can be read there."""

from __future__ import annotations

import pytest

from lengthwise.report.contrast import BLACK, WHITE, Ramp, contrast, linear, ramps


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast(BLACK, WHITE) == pytest.approx(21)
    assert contrast(WHITE, WHITE) == 1
    # The darkest grey that WCAG lets stand on white
    assert contrast(linear("#767676"), WHITE) == pytest.approx(4.54, abs=5e-3)


def test_a_mixture_is_that_of_a_browser() -> None:
    # What chromium paints for color-mix(in oklab, #1c6660 50%, #efe8d8)
    mixed = Ramp(low=linear("#efe8d8"), high=linear("#1c6660")).at(0.5)
    assert mixed == pytest.approx(linear("#89a59a"), abs=4e-3)


@pytest.mark.parametrize("screen", ["light", "dark"])
def test_every_score_can_be_read_in_its_cell(screen: str) -> None:
    ramp = ramps()[screen == "dark"]
    for percent in range(101):
        score = percent / 100
        ink = WHITE if ramp.takes_white(score) else BLACK
        assert contrast(ramp.at(score), ink) >= 4.5, percent


def test_ink_changes_once_from_one_end_to_the_other() -> None:
    light, dark = ([ramp.takes_white(percent / 100) for percent in range(101)] for ramp in ramps())
    assert light == sorted(light)
    assert (light[0], light[-1]) == (False, True)
    assert dark == sorted(dark, reverse=True)
    assert (dark[0], dark[-1]) == (True, False)
