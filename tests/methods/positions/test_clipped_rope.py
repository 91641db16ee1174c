"""Clipped RoPE's frequencies against their definition, pair by pair."""

from __future__ import annotations

import math

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.positions.clipped_rope import ClippedRoPE


@pytest.mark.parametrize("pairs", [1, 4, 64])
@pytest.mark.parametrize("clip", [0, 1, 2, 3, 20, 64, 100])
def test_the_last_pairs_fade_out_with_half_a_cosine(pairs: int, clip: int) -> None:
    own = [500_000 ** (-i / pairs) for i in range(pairs)]
    clipped = min(clip, pairs)
    expected = list(own)
    for k in range(clipped):
        expected[pairs - clipped + k] *= (1 + math.cos(math.pi * k / max(clipped - 1, 1))) / 2
    found = ClippedRoPE(8192, clip).frequencies(torch.tensor(own), 1)
    assert found.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_by_default_pairs_are_clipped_that_do_not_turn_once_within_the_training_length() -> None:
    own = torch.tensor([500_000 ** (-i / 64) for i in range(64)])
    slow = sum(2 * math.pi / theta > 8192 for theta in own.tolist())
    assert slow == 29
    found = ClippedRoPE(8192).frequencies(own, 1)
    assert torch.equal(found, ClippedRoPE(8192, clip=slow).frequencies(own, 1))
    assert torch.equal(found[: 64 - slow + 1], own[: 64 - slow + 1])
    assert float(found[-1]) == pytest.approx(0, abs=1e-12)


def test_only_a_clip_of_nothing_leaves_inputs_alone() -> None:
    assert ClippedRoPE(64, clip=1).leaves_alone(10**6)
    assert not ClippedRoPE(64, clip=2).leaves_alone(1)
    assert not ClippedRoPE(64).leaves_alone(1)


@pytest.mark.parametrize(("arguments", "words"), [({"clip": -1}, "clip >= 0, not -1"), ({"train_length": 0}, "not 0")])
def test_impossible_arguments_are_refused(arguments: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        ClippedRoPE(**{"train_length": 64, **arguments})
