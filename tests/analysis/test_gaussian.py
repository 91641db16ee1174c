"""Quantiles against the standard library's normal, correlations worked out without torch."""

from __future__ import annotations

import math
from statistics import NormalDist, correlation

import pytest
import torch

from lengthwise.analysis.gaussian import normal_quantiles, shown_ranks, straightness, top_probability


def test_quantiles_are_those_of_a_normal_from_the_largest_down() -> None:
    expected = [NormalDist().inv_cdf(share) for share in (0.9, 0.7, 0.5, 0.3, 0.1)]
    assert normal_quantiles(5).tolist() == pytest.approx(expected, abs=1e-12)


def test_a_gaussian_vector_lies_on_a_straight_line_and_an_exponential_one_does_not() -> None:
    n = 400
    shares = [1 - (r + 0.5) / n for r in range(n)]
    gaussian = [3.0 + 2.0 * NormalDist().inv_cdf(share) for share in shares]
    exponential = [-math.log(1 - share) for share in shares]
    for values in (gaussian, exponential):
        expected = correlation(values, [NormalDist().inv_cdf(share) for share in shares])
        assert straightness(torch.tensor(values, dtype=torch.float64)) == pytest.approx(expected, abs=1e-10)
    assert straightness(torch.tensor(gaussian, dtype=torch.float64)) == pytest.approx(1.0, abs=1e-10)
    assert straightness(torch.tensor(exponential, dtype=torch.float64)) < 0.95


def test_equal_entries_have_no_straightness() -> None:
    assert straightness(torch.full((8,), 0.1)) is None
    assert straightness(torch.tensor([2.0])) is None


def test_the_largest_entry_has_its_share_of_the_softmax() -> None:
    assert top_probability(torch.tensor([math.log(6.0), math.log(3.0), 0.0], dtype=torch.float64)) == pytest.approx(0.6)


@pytest.mark.parametrize("n", [2, 40, 161, 162, 512, 15000])
def test_shown_ranks_keep_both_ends_and_are_few(n: int) -> None:
    ranks = shown_ranks(n)
    assert ranks == sorted(set(ranks))
    assert (ranks[0], ranks[-1]) == (0, n - 1)
    assert len(ranks) <= 161
    assert n > 161 or ranks == list(range(n))


def test_between_the_ends_ranks_are_even_by_quantile() -> None:
    quantiles = normal_quantiles(15000)[shown_ranks(15000)]
    steps = (quantiles[:-1] - quantiles[1:]).tolist()
    even = 2 * float(quantiles[0]) / 160
    middle = [step for step, at in zip(steps, quantiles.tolist(), strict=False) if abs(at) < 2]
    assert max(middle) < 1.1 * even
    assert min(middle) > 0.9 * even
