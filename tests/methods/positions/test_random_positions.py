"""RandomPos: sorted, distinct, and every set as likely as any other."""

from __future__ import annotations

from collections import Counter
from math import comb

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.positions.random_positions import RandomPositionsCollator, positions


def test_positions_are_sorted_distinct_and_within_the_target() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        place = positions(10, 30, generator).tolist()
        assert place == sorted(set(place))
        assert len(place) == 10
        assert min(place) >= 0
        assert max(place) < 30


def test_every_set_of_positions_is_equally_likely() -> None:
    generator = torch.Generator().manual_seed(0)
    sets = Counter(tuple(positions(3, 5, generator).tolist()) for _ in range(3000))
    assert len(sets) == comb(5, 3)
    assert min(sets.values()) > 230  # of 300 expected, with a deviation of 16


def test_as_many_places_as_tokens_leave_them_where_they_are() -> None:
    assert positions(6, 6).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_collator_draws_for_every_sequence_and_repeats_with_its_seed() -> None:
    features = [{"input_ids": list(range(8))} for _ in range(3)]
    out = RandomPositionsCollator(target=500, seed=2)(features)
    assert out["input_ids"].tolist() == [list(range(8))] * 3
    assert len({tuple(row) for row in out["position_ids"].tolist()}) == 3
    assert torch.equal(RandomPositionsCollator(target=500, seed=2)(features)["position_ids"], out["position_ids"])
    assert not torch.equal(RandomPositionsCollator(target=500, seed=3)(features)["position_ids"], out["position_ids"])


def test_a_target_below_the_length_is_refused() -> None:
    with pytest.raises(BadInput, match="target of at least the input's 10 tokens, not 9"):
        positions(10, 9)
    with pytest.raises(BadInput, match="target >= 1, not 0"):
        RandomPositionsCollator(target=0)
