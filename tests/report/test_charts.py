"""Where things stand in a chart."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lengthwise.report.charts import (
    Box,
    band,
    end_labels,
    layer_opacity,
    length_label,
    nice_ticks,
    svg_path,
)

BOX = Box(width=200, height=120, left=20, right=10, top=10, bottom=30)
WIDE = Box(width=100, height=10, left=0, right=0, top=0, bottom=0)


def test_a_doubling_is_the_same_distance_everywhere_on_the_length_axis():
    axis = WIDE.lengths([512, 8192], most_ticks=10)
    places = [axis.at(n) for n in (512, 1024, 2048, 4096, 8192)]
    steps = [b - a for a, b in pairwise(places)]
    assert steps == pytest.approx([steps[0]] * 4, abs=0.02)
    assert 0 < places[0] < places[-1] < 100


def test_ticks_are_powers_of_two_inside_the_range():
    axis = WIDE.lengths([500, 15000], most_ticks=10)
    assert [tick.label for tick in axis.ticks] == ["512", "1k", "2k", "4k", "8k", "16k"]
    assert [tick.label for tick in WIDE.lengths([500, 15000], most_ticks=3).ticks] == ["512", "2k", "8k"]


@pytest.mark.parametrize("length", [512, 600, 5210])
def test_one_length_alone_still_has_two_ticks_and_stands_inside(length: int):
    axis = WIDE.lengths([length], most_ticks=10)
    assert len(axis.ticks) >= 2
    assert 0 < axis.at(length) < 100


def test_lengths_are_labelled_as_people_write_them():
    assert [length_label(n) for n in (256, 512, 1000, 1024, 16384, 15000)] == ["256", "512", "1,000", "1k", "16k", "15,000"]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0.45, 1, [0.4, 0.6, 0.8, 1.0]), (3.2, 6.2, [3, 4, 5, 6, 7]), (0.2, 0.2, None)],
)
def test_ticks_of_values_are_round_and_cover_the_range(low: float, high: float, ticks: list[float] | None):
    found = nice_ticks(low, high, 5)
    assert found[0] <= low
    assert found[-1] >= high
    assert len(found) >= 2
    if ticks:
        assert found == ticks


def test_high_values_stand_high_in_the_box():
    axis = BOX.up(0, 1, [(0, "0"), (1, "100 %")])
    assert (axis.at(0), axis.at(1)) == (90, 10)
    assert [(tick.at, tick.label) for tick in axis.ticks] == [(90, "0"), (10, "100 %")]


def test_paths():
    assert svg_path([(1, 2), (3.5, 4)]) == "M1,2L3.5,4"
    assert svg_path(band([(0, 9, 1), (5, 8, 2)])) == "M0,1L5,2L5,8L0,9"


def test_values_have_an_axis_of_round_ticks():
    axis = BOX.values(0.45, 1, 5)
    assert [tick.label for tick in axis.ticks] == ["0.4", "0.6", "0.8", "1"]
    assert (axis.at(0.4), axis.at(1)) == (90, 10)


def test_the_first_and_the_last_layer_are_labelled_first_and_others_where_there_is_room():
    assert end_labels([0, 5, 30, 41]) == ["1", "", "3", "4"]
    assert end_labels([0, 5, 35, 41]) == ["1", "", "", "4"]
    assert end_labels([7.0]) == [""]


def test_later_layers_are_darker():
    assert [layer_opacity(layer, 3) for layer in range(3)] == [0.4, 0.7, 1.0]
    assert layer_opacity(0, 1) == 1.0
