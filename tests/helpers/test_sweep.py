"""The part of a crossing that runs by default."""

from __future__ import annotations

import itertools
from typing import Any

from tests.helpers.sweep import crossed

AXES = (("a", "b", "c", "d"), tuple(range(8)), ("x", "y", "z", "u", "v"), (True, False))


def default(parameters: list[Any]) -> list[tuple[Any, ...]]:
    return [parameter.values for parameter in parameters if not parameter.marks]


def test_all_combinations_are_there_and_a_part_runs_by_default() -> None:
    parameters = crossed(*AXES, every=4)
    assert [parameter.values for parameter in parameters] == list(itertools.product(*AXES))
    assert len(default(parameters)) == len(parameters) / 4
    assert all(mark.name == "sweep" for parameter in parameters for mark in parameter.marks)


def test_values_of_all_but_one_long_axis_meet_by_default() -> None:
    kept = default(crossed(*AXES, every=4))
    for left_out in range(3):
        others = [axis for place, axis in enumerate(AXES) if place != left_out]
        met = {tuple(value for place, value in enumerate(values) if place != left_out) for values in kept}
        assert met == set(itertools.product(*others))


def test_what_is_wanted_whole_is_whole() -> None:
    kept = default(crossed(("t5", "llama", "bert"), range(10), every=5, whole={"llama"}))
    assert [values[1] for values in kept if values[0] == "llama"] == list(range(10))
    assert [values[1] for values in kept if values[0] == "t5"] == [0, 5]
