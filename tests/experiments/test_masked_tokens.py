from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from experiments._lib.masked_tokens import hidden, places, score, together
from lengthwise.errors import BadInput


def test_places_are_different_in_order_and_away_from_the_edges() -> None:
    found = places(20, 18, "a", edge=1)
    assert found == list(range(1, 19))
    assert len(set(places(500, 40, "b"))) == 40
    assert places(500, 40, "b") == sorted(places(500, 40, "b"))
    assert places(500, 40, "b") != places(500, 40, "c")


def test_every_place_is_as_likely_as_any_other() -> None:
    count = Counter(place for seed in range(4000) for place in places(10, 3, str(seed), edge=1))
    assert set(count) == set(range(1, 9))
    expected = 4000 * 3 / 8
    # 8 places, 7 degrees of freedom: beyond 24.3 once in a thousand
    assert sum((seen - expected) ** 2 / expected for seen in count.values()) < 24.3


@pytest.mark.parametrize(("length", "count", "edge"), [(10, 0, 0), (10, 11, 0), (10, 9, 1), (1, 1, 1)])
def test_a_sample_that_cannot_be_is_refused(length: int, count: int, edge: int) -> None:
    with pytest.raises(BadInput, match="cannot be hidden"):
        places(length, count, "a", edge)


def test_each_copy_hides_its_own_tokens() -> None:
    copies = hidden([7, 8, 9, 10], [[0], [2, 3]], mask=103)
    assert copies.tolist() == [[103, 8, 9, 10], [7, 8, 103, 103]]


def test_tokens_hidden_together_are_few_and_far_apart() -> None:
    assert together([3, 5, 8], 4096, None) == [[3], [5], [8]]
    assert together([3, 5, 8], 511, 512) == [[3], [5], [8]]
    where = places(4096, 100, "a")
    groups = together(where, 4096, 512)
    assert len(groups) == 13  # 8 at most in each
    assert {len(group) for group in groups} == {7, 8}
    assert sorted(place for group in groups for place in group) == where
    # Each has every thirteenth place, and a hundred of them share 4,096 tokens
    assert min(b - a for group in groups for a, b in pairwise(group)) > 100


def test_scores_are_those_worked_out_by_hand() -> None:
    nll = [[0.5, 1.5], [2.0, 0.0], [1.0, 1.0]]
    found = score(nll, [[1, 0], [1, 1], [0, 0]])
    assert found.perplexity == pytest.approx(math.e)
    assert found.accuracy == 0.5
    # Wilson by hand: (p + z2/2n +- z sqrt(p(1-p)/n + z2/4n2)) / (1 + z2/n), n = 6
    z = 1.959964
    half = z * math.sqrt(0.25 / 6 + z**2 / 144) / (1 + z**2 / 6)
    assert (found.accuracy_low, found.accuracy_high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)
    assert found.tokens == 6


def test_the_interval_of_perplexity_is_that_of_documents_drawn_again() -> None:
    """Against plain resampling in the test: 40 documents, whose difficulty differs much more than their tokens."""
    randomness = np.random.default_rng(3)
    nll = randomness.gamma(2.0, 1.0, (40, 1)) + randomness.normal(0, 0.1, (40, 25))
    found = score(nll, nll < 1)
    drawn = random.Random(0)
    means = sorted(math.fsum(nll[drawn.randrange(40)].mean() for _ in range(40)) / 40 for _ in range(4000))
    low, high = math.exp(means[100]), math.exp(means[3899])
    assert found.perplexity_low == pytest.approx(low, rel=0.06)
    assert found.perplexity_high == pytest.approx(high, rel=0.06)
    # Tokens drawn one by one would pretend to know it five times as well
    assert math.log(found.perplexity_high / found.perplexity_low) > 4 * 2 * 1.96 * nll.std() / math.sqrt(nll.size)


@pytest.mark.parametrize(
    ("nll", "right", "words"),
    [
        ([[1.0, 2.0]], [[1.0]], "not of the same hidden tokens"),
        ([[1.0, 2.0]], [[0.5, 1.0]], "must be 0 or 1"),
        ([[1.0, math.nan]], [[0.0, 1.0]], "not finite"),
        ([1.0, 2.0], [0.0, 1.0], "must be a table"),
        ([], [], "must be a table"),
    ],
)
def test_what_cannot_be_scored_is_refused(nll: list[float], right: list[float], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        score(nll, right)
