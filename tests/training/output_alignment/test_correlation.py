"""Spearman's coefficient: the paper's Table 1 from its printed columns."""

from __future__ import annotations

import pytest

from lengthwise import BadInput
from lengthwise.training.output_alignment.correlation import spearman

# GPT-J-6B, GPT-NeoX-20B, Llama2-7B, RandomPos, Yarn-Llama-2-7B-8k, Qwen-7B-8k, CLEX-LLaMA-4K
L_TRAIN = (2.1, 2.3, 1.9, 2.2, 2.0, 1.7, 1.7)
L_MISALIGN = (3.4, 3.2, 3.4, 3.3, 2.6, 2.8, 2.4)
LOG_PPL = (9.5, 9.4, 9.4, 8.2, 3.8, 3.2, 1.8)
LONGBENCH_E = (7.8, 9.7, 8.9, 9.2, 21.2, 24.2, 32.7)


def by_ranks(xs: tuple[float, ...], ys: tuple[float, ...]) -> float:
    """Pearson's coefficient of ranks, ties sharing the mean of theirs."""

    def ranks(values: tuple[float, ...]) -> list[float]:
        return [sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values]

    a, b, centre = ranks(xs), ranks(ys), (len(xs) - 1) / 2
    return (
        sum((x - centre) * (y - centre) for x, y in zip(a, b, strict=True))
        / (sum((x - centre) ** 2 for x in a) * sum((y - centre) ** 2 for y in b)) ** 0.5
    )


@pytest.mark.parametrize(
    ("measure", "quality", "recomputed"),
    [
        (L_TRAIN, LOG_PPL, 0.673),
        (L_TRAIN, LONGBENCH_E, -0.559),
        (L_MISALIGN, LOG_PPL, 0.882),
        (L_MISALIGN, LONGBENCH_E, -0.955),
    ],
)
def test_table_1(measure: tuple[float, ...], quality: tuple[float, ...], recomputed: float) -> None:
    assert spearman(measure, quality) == pytest.approx(recomputed, abs=5e-4)
    assert spearman(measure, quality) == pytest.approx(by_ranks(measure, quality), rel=1e-12)


def test_only_the_order_counts() -> None:
    assert spearman((1, 2, 3, 4), (1, 10, 100, 1e6)) == pytest.approx(1)
    assert spearman((1, 2, 3, 4), (4, 3, 2, -9)) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("measure", "quality", "message"),
    [
        ((1.0, 2.0), (1.0, 2.0), "2 models have no correlation"),
        ((1.0, 2.0, 3.0), (1.0, 2.0), "columns of 3 and 2 values"),
        ((1.0, 2.0, 3.0), (2.0, 2.0, 2.0), "the second column is 2.0 throughout"),
        ((1.0, 2.0, float("nan")), (1.0, 2.0, 3.0), "finite numbers"),
    ],
)
def test_bad_input_is_refused(measure: tuple[float, ...], quality: tuple[float, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        spearman(measure, quality)
