"""NoPE takes every rotation away."""

from __future__ import annotations

import torch

from lengthwise.methods.base import leaves_alone
from lengthwise.methods.positions.nope import Nope


def test_nothing_turns_any_more() -> None:
    own = torch.tensor([1.0, 0.1, 0.01])
    frequencies = Nope().frequencies(own, 4096)
    assert frequencies.tolist() == [0.0, 0.0, 0.0]
    assert frequencies.dtype == own.dtype
    assert not leaves_alone(Nope(), 1)
