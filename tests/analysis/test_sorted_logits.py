"""The sorted, averaged logits against loops over single rows in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from lengthwise.analysis import sorted_logits
from lengthwise.analysis.sorted_logits import sorted_mean
from lengthwise.attention import DistanceBias, Equation, Visible

HEADS, SIZE, RADIUS = 3, 4, 2


def equation(visible: Visible, batch: int = 2, bias: bool = True) -> Equation:
    made = torch.Generator().manual_seed(7)
    query, key = (torch.randn(batch, HEADS, visible.keys, SIZE, generator=made) for _ in range(2))
    table = torch.randn(HEADS, 2 * RADIUS + 1, generator=made)
    return Equation(query, key, key, visible, scale=0.7, bias=DistanceBias(table) if bias else None)


def looped(of: Equation, sees: Callable[[int, int, int], bool], counts: Callable[[int], bool], width: int) -> list[list[float]]:
    """[heads][width]: every row's logits as single products, sorted, its quantiles added up. `sees(b, i, j)`, `counts(n)`."""
    batch, heads, queries, _ = of.query.shape
    result = []
    for h in range(heads):
        rows = []
        for b in range(batch):
            for i in range(queries):
                logits = []
                for j in (j for j in range(of.visible.keys) if sees(b, i, j)):
                    product = sum(float(a) * float(c) for a, c in zip(of.query[b, h, i], of.key[b, h, j], strict=True))
                    bias = float(of.bias.table[h, max(-RADIUS, min(RADIUS, j - i)) + RADIUS]) if of.bias else 0.0
                    logits.append(0.7 * product + bias)
                if counts(n := len(logits)):
                    logits.sort(reverse=True)
                    rows.append([logits[int((r + 0.5) * n / width)] for r in range(width)])
        result.append([sum(column) / len(rows) for column in zip(*rows, strict=True)])
    return result


@pytest.mark.parametrize("bias", [True, False])
def test_an_encoders_rows_are_sorted_and_averaged_entry_by_entry(bias: bool) -> None:
    of = equation(Visible.build(11, 11), bias=bias)
    expected = looped(of, lambda b, i, j: True, lambda n: True, 11)
    torch.testing.assert_close(sorted_mean(of), torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=1e-5)


def test_blocks_of_rows_add_up_to_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    of = equation(Visible.build(11, 11))
    whole = sorted_mean(of)
    monkeypatch.setattr(sorted_logits, "CPU_BLOCK", 3 * 2 * HEADS * 11)
    torch.testing.assert_close(sorted_mean(of), whole)


def test_a_causal_models_rows_are_stretched_to_the_widest() -> None:
    of = equation(Visible.build(12, 12, causal=True))
    expected = looped(of, lambda b, i, j: j <= i, lambda n: n > 6, 12)
    found = sorted_mean(of, least_share=0.5)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=1e-5)


def test_padding_is_no_row_and_no_key() -> None:
    padding = torch.ones(2, 9, dtype=torch.bool)
    padding[1, 6:] = False
    of = equation(Visible.build(9, 9, padding=padding))
    expected = looped(of, lambda b, i, j: b == 0 or max(i, j) < 6, lambda n: n > 0, 9)
    torch.testing.assert_close(sorted_mean(of), torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=1e-5)


def test_rows_of_a_window_are_as_long_as_the_window() -> None:
    assert sorted_mean(equation(Visible.build(10, 10, causal=True, window=4))).shape == (HEADS, 4)


def test_logits_are_the_same_under_autocast() -> None:
    of = equation(Visible.build(11, 11))
    plain = sorted_mean(of)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(sorted_mean(of), plain, atol=0, rtol=0)
