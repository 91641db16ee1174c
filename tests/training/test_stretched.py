"""CLEX at the lengths it is trained for: where its tokens stand, and that the draw follows from seed and step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lengthwise.attention import Visible
from lengthwise.errors import BadInput
from lengthwise.methods.positions.clex import Clex
from lengthwise.training.stretched import StretchedClex


def test_stretched_stands_where_the_formula_says() -> None:
    clex = Clex(train_length=32, rotary_size=8)
    torch.nn.init.normal_(clex.down, std=0.1)
    method, own = StretchedClex(clex, 4.0, 16, seed=5), 10_000.0 ** -(torch.arange(4) / 4)
    whole = Visible.build(16, 16, causal=True)
    seen_t = []
    for step in range(50):
        method.step = step
        drawn = np.random.default_rng([1, 5, step])
        t = float(drawn.uniform(1, 4))
        seen_t.append(t)
        assert method.t == t
        torch.testing.assert_close(method.frequencies(own, 16), clex.at(own, t))
        (part,) = method.distances(whole, whole)
        places = part.key[0].tolist()
        assert places == part.query[0].tolist() == sorted(set(places))
        assert len(places) == 16
        assert 0 <= places[0] <= places[-1] < math.floor(t * 32)
        assert part.visible is whole
    assert min(seen_t) < 1.3 < 3.7 < max(seen_t)


def test_every_step_of_a_long_run_draws_other_places() -> None:
    method, whole = StretchedClex(Clex(train_length=32, rotary_size=8), 4.0, 16, seed=5), Visible.build(16, 16, causal=True)
    places = set()
    for method.step in range(200):
        (part,) = method.distances(whole, whole)
        places.add(tuple(part.key[0].tolist()))
    assert len(places) == 200


def test_stretched_begins_where_the_reading_is_and_is_refused_below() -> None:
    clex = Clex(train_length=32, rotary_size=8)
    assert all(StretchedClex(clex, 3.0, 64, seed=seed).t >= 2 for seed in range(20))
    with pytest.raises(BadInput, match="clex draws t from 4 on at length 128; give a --stretch above that, not 4"):
        StretchedClex(clex, 4.0, 128, seed=0)
