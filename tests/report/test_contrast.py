"""What is written in a cell of a heat map can be read there: black or white, whichever a screen's colours ask for.

contrast = (L_brighter + 0.05) / (L_darker + 0.05)                                  WCAG 2, at least 4.5 for small text

L is the relative luminance. A cell's colour is mixed in Oklab, as the style sheet does.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from lengthwise.report.charts import TEMPLATE
from lengthwise.report.runs.depth_map import white_on

BLACK, WHITE = np.zeros(3), np.ones(3)
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
# Ottosson 2020: linear sRGB to the cones, whose cube roots Oklab is linear in
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)


def linear(colour: str) -> np.ndarray:
    """Linear red, green and blue of #rrggbb."""
    channels = np.array(list(bytes.fromhex(colour[1:]))) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def mixed(low: str, high: str, share: float) -> np.ndarray:
    """What a browser makes of color-mix(in oklab, high share, low)."""
    low_cones, high_cones = (np.cbrt(TO_CONES @ linear(colour)) for colour in (low, high))
    return np.linalg.inv(TO_CONES) @ (low_cones + share * (high_cones - low_cones)) ** 3


def contrast(colour: np.ndarray, other: np.ndarray) -> float:
    darker, brighter = sorted(float(LUMINANCE @ rgb) for rgb in (colour, other))
    return (brighter + 0.05) / (darker + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast(BLACK, WHITE) == pytest.approx(21)
    # The darkest grey that WCAG lets stand on white
    assert contrast(linear("#767676"), WHITE) == pytest.approx(4.54, abs=5e-3)


def test_a_mixture_is_that_of_a_browser() -> None:
    # What chromium paints for color-mix(in oklab, #1c6660 50%, #efe8d8)
    assert mixed("#efe8d8", "#1c6660", 0.5) == pytest.approx(linear("#89a59a"), abs=4e-3)


@pytest.mark.parametrize(("screen", "white"), [(0, "white-by-day"), (1, "white-by-night")])
def test_every_score_can_be_read_in_its_cell(screen: int, white: str) -> None:
    style = (TEMPLATE / "page.css").read_text(encoding="utf-8")
    low, high = re.findall(r"--score-low: (#\w{6}); --score-high: (#\w{6});", style)[screen]
    for score in np.linspace(0, 1, 1001).tolist():
        ink = WHITE if white in white_on(score).split() else BLACK
        assert contrast(mixed(low, high, score), ink) >= 4.5, score
