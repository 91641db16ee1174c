"""Crossings of many parameters: `make test` runs a part of them in which every value meets the others, `make test-all` all."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import pytest


def crossed(*axes: Sequence[Any], every: int, whole: Collection[Any] = ()) -> list[Any]:
    """All combinations of the axes' values; one in `every` is run by default, the others are marked `sweep`.

    Combinations are kept where the places of their values add up to a multiple of `every`. So any values of all axes but one
    still meet, if that one has at least `every` values. Every combination with one of the values in `whole` is kept.
    """
    parameters = []
    for places in itertools.product(*(range(len(axis)) for axis in axes)):
        values = [axis[place] for axis, place in zip(axes, places, strict=True)]
        kept = sum(places) % every == 0 or any(value in whole for value in values)
        parameters.append(pytest.param(*values, marks=() if kept else pytest.mark.sweep))
    return parameters
