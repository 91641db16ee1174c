"""PoSE's positions: two unbroken parts, the second anywhere up to the target."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.positions.pose import PoSECollator, positions


def drawn(length: int, target: int, times: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [positions(length, target, generator).tolist() for _ in range(times)]


def test_positions_are_two_unbroken_parts_within_the_target() -> None:
    for place in drawn(length=9, target=40, times=200):
        gaps = [b - a for a, b in pairwise(place)]
        assert place[0] == 0
        assert place[-1] < 40
        assert sum(gap != 1 for gap in gaps) <= 1
        # The first part is at least one token and at most half of them, rounded up
        assert all(gap == 1 for gap in gaps[5:])


def test_cut_and_shift_are_uniform() -> None:
    draws = drawn(length=6, target=10, times=3000)
    shifts = Counter(place[-1] - 5 for place in draws)
    assert sorted(shifts) == [0, 1, 2, 3, 4]
    assert min(shifts.values()) > 500  # of 600 expected, with a deviation of 22
    moved = [place for place in draws if place[-1] > 5]
    cuts = Counter(next(i for i in range(1, 6) if place[i] - place[i - 1] > 1) for place in moved)
    assert sorted(cuts) == [1, 2, 3]
    assert min(cuts.values()) > 700  # of 800 expected, with a deviation of 23


def test_there_is_no_room_to_move_when_the_target_is_the_length() -> None:
    assert positions(5, 5).tolist() == [0, 1, 2, 3, 4]
    assert positions(1, 1).tolist() == [0]
    assert positions(0, 5).tolist() == []


def test_the_collator_gives_every_sequence_its_own_positions() -> None:
    batch = {"input_ids": torch.arange(40).view(4, 10), "labels": torch.zeros(4, 10)}
    out = PoSECollator(target=1000, seed=1)(batch)
    assert out["position_ids"].shape == (4, 10)
    assert torch.equal(out["labels"], batch["labels"])
    assert len({tuple(row) for row in out["position_ids"].tolist()}) == 4
    again = PoSECollator(target=1000, seed=1)(batch)
    assert torch.equal(again["position_ids"], out["position_ids"])
    assert "position_ids" not in batch


def test_a_target_below_the_length_is_refused() -> None:
    with pytest.raises(BadInput, match="target of at least the input's 10 tokens, not 9"):
        PoSECollator(target=9)({"input_ids": torch.zeros(1, 10)})
    with pytest.raises(BadInput, match="target >= 1, not 0"):
        PoSECollator(target=0)
