"""Runs cut at either end, also where nothing is left."""

from __future__ import annotations

import pytest
import torch

from lengthwise.methods.runs import within
from tests.helpers.rows import CASES, keys_of


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("first", [-20, -3, 0, 2, 30])
@pytest.mark.parametrize("size", [0, 1, 4, 50])
def test_a_cut_run_holds_the_keys_of_both(name: str, first: int, size: int) -> None:
    """Cut at `first` keys from the row, `size` keys long."""
    case = CASES[name]
    own = case.visible.position + first
    cut = within(case.visible, own, own + size)
    for (entry, place), keys in zip(case.rows(), keys_of(cut, case), strict=True):
        kept = range(place + first, place + first + size)
        assert keys == {j for j in case.seen(entry, place) if j in kept and j not in case.hidden}
    assert bool((cut.start >= 0).all() & (cut.start <= cut.stop).all() & (cut.stop <= case.keys).all())
    counted = torch.tensor([len(keys) for keys in keys_of(cut, case)])
    assert torch.equal(cut.count.flatten(), counted)
