"""Row statistics: hand-computed rows, and parts of a row that merge into the whole."""

from __future__ import annotations

import math
from functools import reduce

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lengthwise.attention import Equation, Visible, attention, blocks
from lengthwise.attention.statistics import RowStatistics, join, merge
from lengthwise.attention.triton import launch

INFINITY = float("inf")


def by_hand(logits: list[float]) -> tuple[float, float, float, float]:
    """l_max, lse, entropy and P_max from the definitions, one key at a time."""
    total = math.fsum(math.exp(x) for x in logits)
    weights = [math.exp(x) / total for x in logits]
    entropy = -math.fsum(p * math.log(p) for p in weights)
    return max(logits), math.log(total), entropy, max(weights)


def assert_row(rows: RowStatistics, expected: tuple[float, float, float, float], accuracy: float = 1e-9) -> None:
    measured = (rows.l_max, rows.lse, rows.entropy, rows.p_max)
    assert [float(x) for x in measured] == pytest.approx(expected, abs=accuracy)


def test_a_row_of_three_keys_has_the_values_worked_out_by_hand() -> None:
    # exp: 1, 2.718282, 7.389056; sum 11.107338
    rows = RowStatistics.of_logits(torch.tensor([0.0, 1.0, 2.0]))
    assert_row(rows, (2.0, 2.407606, 0.832396, 0.665241), 2e-6)


@pytest.mark.parametrize("n", [1, 2, 512])
def test_a_uniform_row_has_entropy_ln_n_and_p_max_one_over_n(n: int) -> None:
    rows = RowStatistics.of_logits(torch.full((n,), -3.7, dtype=torch.float64))
    assert_row(rows, (-3.7, -3.7 + math.log(n), math.log(n), 1 / n))


def test_a_row_with_one_huge_logit_is_certain_and_does_not_overflow() -> None:
    rows = RowStatistics.of_logits(torch.tensor([1e4, 0.0, -1e4]))
    assert_row(rows, (1e4, 1e4, 0.0, 1.0))


def test_hidden_keys_do_not_count_whatever_they_hold() -> None:
    logits = torch.tensor([[0.0, float("nan"), 1.0, 2.0], [INFINITY, 0.0, 90.0, 0.0]])
    visible = torch.tensor([[True, False, True, True], [False, True, False, True]])
    rows = RowStatistics.of_logits(logits, visible)
    assert rows.p_max.tolist() == pytest.approx([0.665241, 0.5], abs=1e-6)
    assert rows.entropy.tolist() == pytest.approx([0.832396, math.log(2)], abs=1e-6)
    assert rows.lse.tolist() == pytest.approx([2.407606, math.log(2)], abs=1e-6)
    assert rows.l_max.tolist() == pytest.approx([2.0, 0.0], abs=1e-6)


def test_a_row_that_sees_nothing_is_empty_and_not_nan() -> None:
    visible = torch.tensor([[False, False], [True, False]])
    rows = RowStatistics.of_logits(torch.tensor([[4.0, 5.0], [4.0, 5.0]]), visible)
    assert rows.sees.tolist() == [False, True]
    assert rows.l_max.tolist() == [-INFINITY, 4.0]
    assert rows.lse.tolist() == [-INFINITY, 4.0]
    assert rows.entropy.tolist() == [0.0, 0.0]
    assert rows.p_max.tolist() == [0.0, 1.0]


def test_two_halves_of_a_uniform_row_merge_into_the_whole() -> None:
    half = RowStatistics.of_logits(torch.zeros(4, dtype=torch.float64))
    assert_row(merge(half, half), (0.0, math.log(8), math.log(8), 1 / 8))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(keys=st.lists(st.tuples(st.floats(-20, 20), st.integers(0, 3)), min_size=1, max_size=12))
@example(keys=[(1.0, 3)])
@example(keys=[(1.0, 0), (2.0, 0)])
def test_parts_of_a_row_merge_into_the_whole_even_parts_that_see_nothing(keys: list[tuple[float, int]]) -> None:
    logits = torch.tensor([logit for logit, _ in keys], dtype=torch.float64)
    owner = torch.tensor([part for _, part in keys])
    # Four parts always: those that own no key see nothing
    parts = [RowStatistics.of_logits(logits, owner == part) for part in range(4)]
    expected = by_hand(logits.tolist())
    assert_row(reduce(merge, parts), expected)
    assert_row(reduce(merge, reversed(parts)), expected)
    assert_row(merge(merge(parts[0], parts[1]), merge(parts[2], parts[3])), expected)


def test_parts_that_see_nothing_merge_into_a_row_that_sees_nothing() -> None:
    nothing = RowStatistics.of_logits(torch.zeros(2), torch.zeros(2, dtype=torch.bool))
    rows = merge(nothing, nothing)
    assert not bool(rows.sees)
    assert float(rows.lse) == -INFINITY
    assert float(rows.entropy) == 0.0
    assert float(rows.p_max) == 0.0


def test_a_merge_treats_every_row_by_itself() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [5.0, 0.0, 0.0]], dtype=torch.float64)
    left = torch.tensor([[True, False, False], [False, False, False]])
    rows = merge(RowStatistics.of_logits(logits, left), RowStatistics.of_logits(logits, ~left))
    assert_row(rows.map(lambda field: field[0]), by_hand([0.0, 1.0, 2.0]))
    assert_row(rows.map(lambda field: field[1]), by_hand([5.0, 0.0, 0.0]))


def test_joined_rows_stand_one_after_the_other() -> None:
    rows = [RowStatistics(*(torch.full((2, 3, size), value + size) for value in (0.0, 10.0, 20.0))) for size in (1, 2)]
    joined = join(rows, -1)
    assert joined.p_max.shape == (2, 3, 3)
    assert joined.p_max[1, 2].tolist() == [1.0, 2.0, 2.0]
    assert joined.lse[0, 0].tolist() == [11.0, 12.0, 12.0]
    assert joined.entropy[1, 0].tolist() == [21.0, 22.0, 22.0]
    assert join([rows[0], rows[0]], 0).entropy.shape == (4, 3, 1)


@pytest.mark.parametrize("implementation", ["reference", "blockwise", "triton", "scan", "triton scan"])
def test_p_max_is_exact_where_logits_are_large(implementation: str) -> None:
    """Integers of some 4,000, which have no error themselves; the difference of l_max and lse would be wrong by 1e-4."""
    if "triton" in implementation:
        pytest.importorskip("triton")
    query, key = torch.zeros(1, 1, 70, 16), torch.zeros(1, 1, 70, 16)
    query[..., 0], key[..., 0] = 1.0, 4096.0 - torch.arange(70) % 7
    equation = Equation(query, key, torch.randn_like(key), Visible.build(70, 70))
    with torch.no_grad():
        if "scan" in implementation:
            rows = (launch if "triton" in implementation else blocks).scan(equation, torch.ones(1, 1, 1, 1))
        else:
            rows = attention(equation, statistics=True, implementation=implementation)[1]
    assert rows is not None
    expected = 1 / math.fsum(10 * math.exp(-below) for below in range(7))
    # The forward kernel's logits are powers of two, so no integers
    accuracy = 5e-5 if implementation == "triton" else 1e-6
    assert rows.p_max.unique().tolist() == pytest.approx([expected] * len(rows.p_max.unique()), rel=accuracy)
    assert rows.l_max.unique().tolist() == pytest.approx([4096.0] * len(rows.l_max.unique()), rel=1e-6)


def test_entropy_is_exact_where_logits_are_large() -> None:
    logits = torch.tensor([[1000.0, 999.5, 998.0, -1000.0]])
    seen = torch.tensor([[True, True, True, False]])
    weights = [math.exp(-x) for x in (0.0, 0.5, 2.0)]
    expected = -math.fsum(w / sum(weights) * math.log(w / sum(weights)) for w in weights)
    assert float(RowStatistics.of_logits(logits, seen).entropy) == pytest.approx(expected, rel=1e-4)
