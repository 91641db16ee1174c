"""Intervals of mean scores, against scipy and by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import beta, binomtest, multinomial, t

from lengthwise.records import mean_interval
from lengthwise.records.intervals import paired_interval


def test_wilson_intervals_are_scipys() -> None:
    for n in (1, 2, 5, 12, 20, 100):
        for right in range(n + 1):
            expected = binomtest(right, n).proportion_ci(method="wilson")
            found = mean_interval([1.0] * right + [0.0] * (n - right))
            assert found == pytest.approx((right / n, expected.low, expected.high), abs=1e-9)


def test_intervals_by_hand() -> None:
    # 8 of 10: centre (0.8 + 0.19207) / 1.38415, half-width 1.95996 * sqrt(0.016 + 0.0096036) / 1.38415
    assert mean_interval([1.0] * 8 + [0.0] * 2) == pytest.approx((0.8, 0.49016, 0.94332), abs=1e-5)
    # Student's t for 3 scores is 4.30265; their standard deviation 0.1
    assert mean_interval([0.4, 0.5, 0.6]) == pytest.approx((0.5, 0.5 - 0.24841, 0.5 + 0.24841), abs=1e-5)
    assert mean_interval([0.4, 0.5, 0.6])[1] == pytest.approx(t.interval(0.95, 2, 0.5, 0.1 / 3**0.5)[0])


def test_one_sample_or_equal_scores_claim_no_certainty() -> None:
    assert mean_interval([1.0])[1:] == pytest.approx((0.2065, 1.0), abs=1e-4)
    mean, low, high = mean_interval([0.5])
    assert low < 0.1 < 0.9 < high
    mean, low, high = mean_interval([0.5, 0.5, 0.5])
    assert low < 0.2 < mean < 0.8 < high
    # Means of parts may be equal but for rounding
    assert mean_interval([0.7 + 0.1, 0.8]) == pytest.approx(mean_interval([0.8, 0.8]))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
@example([3.472016818133758e-13, 3.472016818133758e-13])
def test_an_interval_holds_its_mean_and_stays_between_0_and_1(scores: list[float]) -> None:
    mean, low, high = mean_interval(scores)
    assert 0 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1


def differences(better: int, worse: int, n: int, step: float = 1.0) -> list[float]:
    return [step] * better + [-step] * worse + [0.0] * (n - better - worse)


def test_paired_intervals_are_fay_and_lumbards() -> None:
    """As mcnemarExactDP of the R package exact2x2 defines them, over the shares that differ instead of those that are better.

    Its example: 21 children before and after a transplantation, 1 and 7 of whom changed (Bentur et al. 2009, exact p 0.0703).
    """
    for better, worse, n in ((1, 7, 21), (8, 2, 20), (30, 10, 100), (5, 0, 100), (3, 3, 12)):
        _, low, high = paired_interval(differences(better, worse, n))
        assert low == pytest.approx(lower_end(better, worse, n), abs=1e-4)
        assert high == pytest.approx(-lower_end(worse, better, n), abs=1e-4)


def lower_end(better: int, worse: int, n: int) -> float:
    differ = better + worse

    def below(end: float) -> float:
        shares = beta(differ, n - differ + 1) if end > 0 else beta(differ + 1, n - differ)
        known = partial(beta.cdf, a=better, b=worse + 1) if better else lambda at: float(at >= 0)
        chance = quad(lambda s: known(0.5 + end / (2 * s)) * shares.pdf(s), 0, 1, points=[differ / n, abs(end)], limit=200)
        return float(chance[0]) - 0.025

    return float(brentq(below, -0.999, 0.999))


def test_paired_intervals_have_their_known_ends() -> None:
    # None differs: Clopper and Pearson's end for none of n, 1 - 0.025^(1/n)
    assert paired_interval([0.0] * 100) == pytest.approx((0.0, -0.036217, 0.036217), abs=1e-6)
    # All differ, and 0 is inside: twice Clopper and Pearson's ends for 6 of 10, less 1
    share = binomtest(6, 10).proportion_ci()
    assert paired_interval(differences(6, 4, 10))[1:] == pytest.approx((2 * share.low - 1, 2 * share.high - 1), abs=1e-6)
    # All that differ are better: the end above is Clopper and Pearson's of their share
    assert paired_interval(differences(5, 0, 100))[2] == pytest.approx(binomtest(5, 100).proportion_ci().high, abs=1e-6)
    # Student's t for 3 differences, as for 3 scores above; not cut at 1, because nats can be
    assert paired_interval([1.4, 1.5, 1.6]) == pytest.approx((1.5, 1.5 - 0.24841, 1.5 + 0.24841), abs=1e-5)


@pytest.mark.parametrize("step", [1.0, 0.2])
def test_paired_intervals_leave_out_0_just_where_the_exact_test_does(step: float) -> None:
    """Also of means over five lengths, each sample differing at one; Agresti and Min's leave it out at 5 to 0, p 0.0625."""
    for better in range(13):
        for worse in range(13):
            p = binomtest(better, better + worse).pvalue if better + worse else 1.0
            _, low, high = paired_interval(differences(better, worse, 100, step))
            assert (low > 0 or high < 0) == (p < 0.05)


def test_two_that_never_differ_claim_no_certainty() -> None:
    for same in ([0.0] * 8, [0.25] * 8, [0.3]):
        mean, low, high = paired_interval(same)
        assert low < mean < high


def test_rounding_is_no_difference() -> None:
    """0.8 - 0.6 is not 0.6 - 0.4, and 0.1 + 0.2 not 0.3: such traces tell nothing of chance."""
    _, low, high = paired_interval([0.4 - 0.2, 0.6 - 0.4, 0.8 - 0.6])
    assert low < 0 < 0.8 < high
    assert paired_interval([0.1 + 0.2 - 0.3, *[0.0] * 9])[1:] == pytest.approx(paired_interval([0.0] * 10)[1:])


@pytest.mark.parametrize(
    ("n", "better", "worse"),
    [(10, 0.2, 0.1), (20, 0.05, 0.05), (20, 0.1, 0.0), (50, 0.05, 0.01), (50, 0.3, 0.02), (100, 0.02, 0.0), (100, 0.02, 0.02)],
)
def test_paired_intervals_of_right_and_wrong_hold_the_truth_nineteen_times_of_twenty(
    n: int, better: float, worse: float
) -> None:
    """Every outcome of n pairs, weighted by its probability, but for those of less than one in a million."""
    missed = [0.0, 0.0]
    for more in range(n + 1):
        for less in range(n + 1 - more):
            chance = multinomial.pmf([more, less, n - more - less], n, [better, worse, 1 - better - worse])
            if chance > 1e-6:
                _, low, high = paired_interval(differences(more, less, n))
                missed[0] += chance * (low > better - worse)
                missed[1] += chance * (high < better - worse)
    assert max(missed) < 0.0255


@pytest.mark.parametrize(("better", "worse"), [(0.01, 0.01), (0.01, 0.001), (0.03, 0.001), (0.05, 0.02)])
def test_paired_intervals_of_means_hold_the_truth_where_few_samples_differ(better: float, worse: float) -> None:
    """Five lengths of 100 samples, of which a third are the same sample's everywhere; Student's hold it in 87 to 96 %."""
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        each, common = ((random.random(size)[..., None] < (better, better + worse)) for size in ((100, 5), (100, 1)))
        chosen = np.where(random.random((100, 5, 1)) < 1 / 3, common, each)
        # Below the first bound better, between both worse
        signs = 2.0 * chosen[..., 0] - chosen[..., 1]
        _, low, high = paired_interval(signs.mean(1).tolist())
        covered += low <= better - worse <= high
    assert covered >= 0.93 * 300
