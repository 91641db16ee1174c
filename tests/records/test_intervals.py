"""Intervals of mean scores, against scipy and by hand."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binomtest, multinomial, t

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


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
@example([3.472016818133758e-13, 3.472016818133758e-13])
def test_an_interval_holds_its_mean_and_stays_between_0_and_1(scores: list[float]) -> None:
    mean, low, high = mean_interval(scores)
    assert 0 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1


def test_paired_intervals_by_hand() -> None:
    # Better in 8 of 20 pairs and worse in 2, Agresti and Min: 6/22 -+ 1.96 sqrt(11 - 36/22) / 22
    assert paired_interval([1.0] * 8 + [-1.0] * 2 + [0.0] * 10) == pytest.approx((0.3, 0.0002, 0.5453), abs=1e-4)
    # Student's t for 3 differences, as for 3 scores above; not cut at 1, because nats can be
    assert paired_interval([1.4, 1.5, 1.6]) == pytest.approx((1.5, 1.5 - 0.24841, 1.5 + 0.24841), abs=1e-5)


def test_two_that_never_differ_claim_no_certainty() -> None:
    for differences in ([0.0] * 8, [0.25] * 8, [0.3]):
        mean, low, high = paired_interval(differences)
        assert low < mean < high
    assert paired_interval([0.0] * 8)[2] == pytest.approx(1.96 / 10, abs=1e-3)


@pytest.mark.parametrize(("n", "better", "worse"), [(10, 0.2, 0.1), (20, 0.05, 0.05), (50, 0.3, 0.02), (10, 0.02, 0.02)])
def test_paired_intervals_of_right_and_wrong_hold_the_truth_nineteen_times_of_twenty(
    n: int, better: float, worse: float
) -> None:
    """Every outcome of n pairs, weighted by its probability."""
    covered = 0.0
    for more in range(n + 1):
        for less in range(n + 1 - more):
            _, low, high = paired_interval([1.0] * more + [-1.0] * less + [0.0] * (n - more - less))
            if low <= better - worse <= high:
                covered += multinomial.pmf([more, less, n - more - less], n, [better, worse, 1 - better - worse])
    assert covered > 0.93
