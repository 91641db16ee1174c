from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from lengthwise.errors import BadInput
from lengthwise.tasks.synthetic import BOS, EOS, PAD, VOCABULARY, samples, training


@pytest.mark.parametrize("kind", ["uniform", "uniform ones"])
def test_tokens_are_bos_bits_eos_and_padding_and_targets_follow_from_them(kind: str) -> None:
    some = training(300, 10, np.random.default_rng(0), kind)
    assert some.tokens.shape == (300, 12)
    assert some.tokens.max() < VOCABULARY
    for row, length, end, mean, bits, ones in zip(
        some.tokens.tolist(),
        some.lengths.tolist(),
        some.ends.tolist(),
        some.target("mean"),
        some.target("length"),
        some.target("sum"),
        strict=True,
    ):
        inside = row[1 : row.index(EOS)]
        assert row == [BOS, *inside, EOS, *[PAD] * (10 - len(inside))]
        assert set(inside) <= {0, 1}
        assert (length, end, bits, ones) == (len(inside), row.index(EOS), len(inside), sum(inside))
        assert mean == pytest.approx(sum(inside) / len(inside))


def test_training_lengths_are_alike() -> None:
    counts = Counter(training(20_000, 10, np.random.default_rng(1)).lengths.tolist())
    assert sorted(counts) == list(range(1, 11))
    # 5 standard deviations of a binomial count
    assert all(abs(count - 2000) < 5 * (20_000 * 0.1 * 0.9) ** 0.5 for count in counts.values())


def test_uniform_bits_have_a_binomial_number_of_ones_and_uniform_ones_a_flat_one() -> None:
    fair = Counter(samples(4, 16_000, 0).ones.tolist())
    flat = Counter(samples(4, 16_000, 0, "uniform ones").ones.tolist())
    for ones, ways in enumerate((1, 4, 6, 4, 1)):
        assert fair[ones] == pytest.approx(1000 * ways, abs=5 * (16_000 * 0.25) ** 0.5)
        assert flat[ones] == pytest.approx(3200, abs=5 * (16_000 * 0.16) ** 0.5)


def test_every_place_is_as_likely_to_hold_a_one() -> None:
    bits = samples(6, 12_000, 3, "uniform ones").tokens[:, 1:-1]
    # Half of all bits are ones; neighbours of one row are not independent, rows are
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / 12_000**0.5


def test_a_seed_gives_the_same_sequences_and_another_one_others() -> None:
    assert np.array_equal(samples(20, 5, 7).tokens, samples(20, 5, 7).tokens)
    assert not np.array_equal(samples(20, 5, 7).tokens, samples(20, 5, 8).tokens)
    assert samples(20, 5, 7).lengths.tolist() == [20] * 5


def test_what_makes_no_sequence_is_refused() -> None:
    with pytest.raises(BadInput, match="at least 1 bit, not 0"):
        samples(0, 1, 0)
    with pytest.raises(BadInput, match="at least 1 sequence"):
        training(0, 10, np.random.default_rng(0))
    with pytest.raises(BadInput, match="no kind of bits 'skewed'; take one of uniform, uniform ones"):
        samples(5, 1, 0, "skewed")
    with pytest.raises(BadInput, match="no target 'median'; take one of mean, length, sum"):
        samples(5, 1, 0).target("median")
