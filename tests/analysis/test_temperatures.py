"""Both propositions against numerical solutions on Gaussian logits, and what is said where they have none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor

from lengthwise.analysis.measurements import top_probability
from lengthwise.analysis.records import Aligned, AtLength, Temperatures
from lengthwise.analysis.temperatures import temperatures
from tests.helpers.analysed import at

TRAIN_LENGTH = 512
NUMBERS = 2**19  # in the rows of one length


def gaussian_rows(n: int, sigma: float, largest: float | None, seed: int) -> Tensor:  # [rows, n], float64
    """Zero mean; with `largest` the first entry of every row is that, as Assumption 2 has it."""
    made = torch.Generator().manual_seed(seed)
    rows = sigma * torch.randn(NUMBERS // n, n, dtype=torch.float64, generator=made)
    if largest is not None:
        rows = rows.clamp_max(largest)
        rows[:, 0] = largest
    return rows


def told_of(rows: Tensor) -> AtLength:
    """As the analysis would have it: the rows sorted, then averaged."""
    vector = rows.sort(-1, descending=True).values.mean(0)
    sigma = float((vector - vector.mean()).square().mean().sqrt())
    return at(rows.shape[1], keys=rows.shape[1], sigma=sigma, top_p=top_probability(vector))


def solved(short: Tensor, long: Tensor, statistic: Callable[[Tensor], float]) -> float:
    """The tau at which the long rows have the statistic of the short ones, by bisection."""
    target = statistic(short)
    return float(brentq(lambda tau: statistic(long / tau) - target, 0.05, 1.2, xtol=1e-9))


def mean_p_max(rows: Tensor) -> float:
    return float(torch.exp(rows.amax(-1) - rows.logsumexp(-1)).mean())


def mean_entropy(rows: Tensor) -> float:
    p = rows.softmax(-1)
    return float(-(p * p.log()).sum(-1).mean())


def both(short: Tensor, long: Tensor) -> Temperatures:
    return temperatures(short.shape[1], [told_of(short), told_of(long)], {})[1]


@pytest.mark.parametrize(
    ("length", "sigma", "longer_sigma", "largest"),
    [(2048, 1.0, 1.0, 5.0), (4096, 1.0, 1.0, 5.0), (4096, 0.5, 0.6, 4.0), (16384, 0.8, 0.7, 5.0), (16384, 1.0, 0.8, 5.0)],
)
def test_proposition_1_is_the_temperature_that_keeps_p_max_of_gaussian_logits(
    length: int, sigma: float, longer_sigma: float, largest: float
) -> None:
    short, long = gaussian_rows(TRAIN_LENGTH, sigma, largest, 0), gaussian_rows(length, longer_sigma, largest, 1)
    found = both(short, long).proposition_1
    expected = solved(short, long, mean_p_max)
    assert 0.4 < expected < 0.9
    assert found == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("train_length", "length", "sigma", "longer_sigma"),
    [(512, 1024, 0.8, 0.8), (512, 2048, 0.5, 0.5), (512, 2048, 1.0, 1.0), (8192, 65536, 0.5, 0.6), (8192, 65536, 1.0, 1.0)],
)
def test_proposition_2_is_the_temperature_that_keeps_the_entropy_of_gaussian_logits(
    train_length: int, length: int, sigma: float, longer_sigma: float
) -> None:
    short, long = gaussian_rows(train_length, sigma, None, 2), gaussian_rows(length, longer_sigma, None, 3)
    found = both(short, long).proposition_2
    expected = solved(short, long, mean_entropy)
    assert 0.2 < expected < 0.9
    assert found == pytest.approx(expected, rel=0.02)


def test_proposition_2_is_too_warm_where_keys_are_few() -> None:
    """It takes means over all of a normal, of which 4,096 logits do not reach the end that counts at such a temperature."""
    short, long = gaussian_rows(512, 1.0, None, 2), gaussian_rows(4096, 1.0, None, 3)
    found = both(short, long).proposition_2
    assert found is not None
    assert 1.02 < found / solved(short, long, mean_entropy) < 1.06


def test_at_the_training_length_every_account_says_1() -> None:
    one = temperatures(TRAIN_LENGTH, [told_of(gaussian_rows(TRAIN_LENGTH, 1.0, 5.0, 0))], {})[0]
    assert (one.proposition_1, one.proposition_2) == pytest.approx((1.0, 1.0), abs=1e-9)
    assert (one.pmax, one.entropy, one.log_law, one.why) == (1.0, 1.0, 1.0, {})


def test_a_root_other_than_1_at_the_training_length_is_explained() -> None:
    # A = ln(512 / 50), B = A + 4.5, C = 4.5: the roots are 1 and C / A
    one = temperatures(512, [at(512, sigma=3.0, top_p=0.02)], {})[0]
    assert one.proposition_1 == pytest.approx(4.5 / math.log(10.24))
    assert "sigma^2/2 = 4.500 is above ln(n P_max) = 2.326" in one.why["proposition_1"]


def test_a_quadratic_without_a_root_is_explained() -> None:
    found = temperatures(512, [at(512, sigma=2.0, top_p=0.28), at(15000, sigma=2.0)], {})[1]
    assert found.proposition_1 is None
    assert "no real root at length 15000" in found.why["proposition_1"]
    # sqrt(4 + 2 ln(15000 / 512)) = 3.2792
    assert found.proposition_2 == pytest.approx(2 / 3.2792, abs=1e-4)


def test_logits_that_are_all_equal_have_no_entropy_to_keep() -> None:
    found = temperatures(512, [at(512, sigma=0.0), at(1024, sigma=0.0)], {})[1]
    assert found.proposition_2 is None
    assert "all logits of the first layer are equal" in found.why["proposition_2"]


def test_what_algorithm_1_found_stands_beside_them() -> None:
    aligned = {(1024, "pmax"): Aligned(1024, "pmax", 0.8), (1024, "entropy"): Aligned(1024, "entropy", None, "there is none")}
    # Below the training length there is no temperature to tell
    trained, longer, longest = temperatures(512, [at(n) for n in (256, 512, 1024, 2048)], aligned)
    assert trained.length == 512
    assert (longer.pmax, longer.entropy, longer.log_law) == (0.8, None, 0.9)
    assert longer.why["entropy"] == "there is none"
    assert (longest.pmax, longest.why["pmax"]) == (None, "not calibrated yet")


def test_without_the_training_length_nothing_is_told() -> None:
    assert temperatures(512, [at(1024)], {}) == []
