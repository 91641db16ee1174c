"""Perplexity by position, in windows and of one method against another, against hand-computed values and plain loops."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.errors import BadInput
from lengthwise.tasks.perplexity import SlidingWindow, SlidingWindows, by_bucket, compared, doubling


def test_buckets_are_exponentials_of_means() -> None:
    nll = [[0.0, math.log(4), 1.0, 2.0, 3.0], [math.log(16), 0.0, 4.0, 5.0, 6.0]]
    first, second = by_bucket(nll, [0, 2, 5])
    # ln 4 + ln 16 = 6 ln 2 over four tokens; 21 over six
    assert first.perplexity == pytest.approx(2 ** (6 / 4))
    assert second.perplexity == pytest.approx(math.exp(3.5))
    assert (first.first, first.last, first.tokens) == (0, 2, 4)
    assert (second.first, second.last, second.tokens) == (2, 5, 6)


def test_edges_double_from_the_training_length_on() -> None:
    assert doubling(256, 2048) == [0, 256, 512, 1024, 2048]
    assert doubling(256, 1500) == [0, 256, 512, 1024, 1500]
    assert doubling(256, 256) == [0, 256]
    assert doubling(256, 100) == [0, 100]


def test_a_tensor_is_as_good_as_a_list() -> None:
    nll = torch.rand(3, 40, generator=torch.Generator().manual_seed(0))
    assert by_bucket(nll, [0, 40]) == by_bucket(nll.tolist(), [0, 40])


@pytest.mark.parametrize(
    ("streams", "tokens", "stretch", "resampled"),
    [
        (40, 30, None, "streams"),
        (3, 2000, 20, "streams in every stretch of 20 tokens"),
        (1, 4000, None, "blocks of 250 tokens"),
        (1, 4000, 20, "blocks of 250 tokens"),
    ],
)
def test_the_interval_is_that_of_a_mean(streams: int, tokens: int, stretch: int | None, resampled: str) -> None:
    """Independent tokens of known spread: the central limit theorem tells the interval without any bootstrap."""
    nll = np.random.default_rng(1).exponential(1.0, (streams, tokens))
    (bucket,) = by_bucket(nll, [0, tokens], stretch)
    half = 1.96 * statistics.stdev(nll.ravel().tolist()) / math.sqrt(nll.size)
    assert bucket.resampled == resampled
    assert math.log(bucket.low) == pytest.approx(nll.mean() - half, abs=0.35 * half)
    assert math.log(bucket.high) == pytest.approx(nll.mean() + half, abs=0.35 * half)
    assert bucket == by_bucket(nll, [0, tokens], stretch)[0]


def test_streams_that_differ_widen_the_interval() -> None:
    """Tokens of a stream are alike here: 12 streams of 500 tokens know no more than 12 numbers."""
    levels = [0.1 * k for k in range(12)]
    (bucket,) = by_bucket([[level] * 500 for level in levels], [0, 500])
    # Student's 97.5 % point with 11 degrees of freedom
    half = 2.201 * statistics.stdev(levels) / math.sqrt(12)
    assert (math.log(bucket.high) - math.log(bucket.low)) / 2 == pytest.approx(half, rel=0.05)
    # Two streams say next to nothing: 12.71 with one degree of freedom, of which draws reach the ends, 0.707 of it
    (two,) = by_bucket([[0.0] * 500, [1.0] * 500], [0, 500])
    assert (math.log(two.high) - math.log(two.low)) / 2 == pytest.approx(0.5 * math.sqrt(2) * 12.706 / 1.96, rel=1e-3)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    """Four streams of exponential tokens, whose mean is 1; the share of 400 intervals has itself a spread of 1.1 %."""
    randomness = np.random.default_rng(7)
    for stretch in (None, 10):
        found = [by_bucket(randomness.exponential(1.0, (4, 50)), [0, 50], stretch)[0] for _ in range(400)]
        assert 0.91 <= sum(one.low <= math.e <= one.high for one in found) / 400 <= 0.99


def test_a_trend_over_the_positions_is_no_spread_between_streams() -> None:
    """Four streams that rise alike by 10 nats, each with noise of its own of 0.1 in every stretch of 5 tokens."""
    noise = np.random.default_rng(6).normal(0.0, 0.1, (4, 200)).repeat(5, axis=1)
    (bucket,) = by_bucket(np.linspace(0, 10, 1000) + noise, [0, 1000], stretch=5)
    half = 1.96 * 0.1 / math.sqrt(4 * 200)
    assert (math.log(bucket.high) - math.log(bucket.low)) / 2 == pytest.approx(half, rel=0.15)


def test_neighbours_that_are_alike_widen_the_interval_of_one_stream() -> None:
    """The same numbers, each told 100 times in a row, or shuffled."""
    values = np.random.default_rng(2).exponential(1.0, 40).repeat(100)
    shuffled = np.random.default_rng(3).permutation(values)
    (alike,), (mixed,) = (by_bucket(one[None], [0, 4000]) for one in (values, shuffled))
    assert alike.perplexity == pytest.approx(mixed.perplexity)
    assert alike.high - alike.low > 5 * (mixed.high - mixed.low)


def test_the_last_block_counts_by_its_own_size() -> None:
    """71 tokens are 17 blocks of four and one of three; where all tokens are alike, so is every draw."""
    (bucket,) = by_bucket([[2.0] * 71], [0, 71])
    assert (bucket.low, bucket.high) == pytest.approx((math.exp(2), math.exp(2)))
    assert bucket.resampled == "blocks of 4 tokens"


def test_blocks_are_never_longer_than_256_tokens() -> None:
    assert by_bucket(np.zeros((1, 8192)), [0, 8192])[0].resampled == "blocks of 256 tokens"


def test_a_ratio_is_told_by_differences_on_the_same_tokens() -> None:
    randomness = np.random.default_rng(4)
    hard = randomness.exponential(3.0, (2, 2000))
    slightly = hard + randomness.normal(0.02, 0.01, hard.shape)
    found = compared(slightly, hard)
    difference = math.fsum((slightly - hard).ravel()) / hard.size
    assert math.log(found.ratio) == pytest.approx(difference)
    assert found.ratio == pytest.approx(by_bucket(slightly, [0, 2000])[0].perplexity / by_bucket(hard, [0, 2000])[0].perplexity)
    # Unpaired, the spread of the tokens would hide two percent
    assert 1.019 < found.low < found.ratio < found.high < 1.022
    assert found.tokens == 4000
    same = compared(hard, hard)
    assert (same.ratio, same.low, same.high) == (1.0, 1.0, 1.0)


def test_a_plan_by_hand() -> None:
    assert SlidingWindows(4, 2).over(9) == [
        SlidingWindow(0, 4, 1),
        SlidingWindow(2, 6, 4),
        SlidingWindow(4, 8, 6),
        SlidingWindow(6, 9, 8),
    ]
    assert SlidingWindows(4, 2).over(3) == [SlidingWindow(0, 3, 1)]
    assert SlidingWindows(3, 1).over(5) == [SlidingWindow(0, 3, 1), SlidingWindow(1, 4, 3), SlidingWindow(2, 5, 4)]


@given(st.integers(2, 40), st.data())
def test_every_token_but_the_first_is_scored_once(length: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, length - 1))
    tokens = data.draw(st.integers(2, 150))
    plan = SlidingWindows(length, stride).over(tokens)
    assert [token for window in plan for token in range(window.scored, window.stop)] == list(range(1, tokens))
    for window in plan:
        assert window.stop - window.start <= length
        assert window.scored - window.start >= min(window.scored, length - stride)
        assert window.targets >= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: by_bucket([1.0, 2.0], [0, 2]), r"a table of \[streams, tokens\], not of shape \(2,\)"),
        (lambda: by_bucket([[]], [0, 1]), r"not of shape \(1, 0\)"),
        (lambda: by_bucket([[1.0, math.nan]], [0, 2]), "1 of 2 negative log-likelihoods are not finite"),
        (lambda: by_bucket([[1.0, 2.0]], [0, 3]), r"edges must rise within 0 \.\.\. 2.* \[0, 3\]"),
        (lambda: by_bucket([[1.0, 2.0]], [1, 1]), "edges must rise"),
        (lambda: by_bucket([[1.0, 2.0]], [2]), "edges must rise"),
        (lambda: by_bucket([[1.0, 2.0]], [-1, 2]), "edges must rise"),
        (lambda: compared([[1.0, 2.0]], [[1.0]]), r"\(1, 2\) and \(1, 1\) are not the same streams and tokens"),
        (lambda: compared([[1.0, 2.0]], [[1.0, 2.0]], stretch=0), "a stretch needs at least 1 token, not 0"),
        (lambda: SlidingWindows(1, 1), "a window needs 2 tokens"),
        (lambda: SlidingWindows(8, 8), "stride must be from 1 to 7 for windows of 8 tokens, not 8"),
        (lambda: SlidingWindows(8, 0), "not 0"),
        (lambda: SlidingWindows(8, 4).over(1), "a text of 1 tokens has none to score"),
        (lambda: doubling(0, 8), "at least 1 token, not 0"),
        (lambda: doubling(8, 0), "at least 1 token, not 0"),
    ],
)
def test_bad_input_is_refused(call: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        call()  # type: ignore[operator]
