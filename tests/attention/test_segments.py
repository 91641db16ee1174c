"""Attention within segments against loops over heads, rows and keys in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lengthwise.attention import DistanceBias, Equation, Rest, Visible, attention
from lengthwise.attention.segments import Span, within_segments

TOKENS, SIZE = 9, 4
SHARES: list[list[Span]] = [[(0, 4), (4, 9)], [(0, 2), (2, 6), (6, 9)]]


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def looped(equation: Equation, runs: list[Equation]) -> Tensor:
    """A key of the softmax comes from the run that shows it."""
    batch, heads, queries, _ = equation.query.shape
    output = torch.zeros(batch, heads, queries, equation.value.shape[-1], dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            spans = SHARES[0] if h < heads // 2 else SHARES[1]
            for i in range(queries):
                first, last = next(span for span in spans if span[0] <= i < span[1])
                weights, values = [], []
                for run in runs:
                    shown = run.visible.mask().expand(batch, -1, -1)[b, i]
                    kv = h // (heads // run.key.shape[1])
                    for j in range(first, last):
                        if shown[j]:
                            logit = equation.scale * float(run.query[b, h, i] @ run.key[b, kv, j])
                            if equation.bias is not None:
                                radius = equation.bias.radius
                                logit += float(equation.bias.table[h, max(-radius, min(radius, j - i)) + radius])
                            weights.append(math.exp(logit))
                            values.append(run.value[b, kv, j])
                if weights:
                    mixed = sum(w * v for w, v in zip(weights, values, strict=True))
                    output[b, h, i] = mixed / sum(weights)
    return output


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("case", ["causal", "padded", "hidden", "bias", "parts"])
def test_segments_are_what_loops_give(kv_heads: int, case: str) -> None:
    padding = torch.ones(2, TOKENS, dtype=torch.bool)
    if case == "padded":
        padding[0, :5] = False
    if case == "hidden":
        padding[1, [3, 5]] = False
    visible = Visible.build(TOKENS, TOKENS, causal=True, padding=padding)
    query, key, value = (drawn(2, n, TOKENS, SIZE, seed=n) for n in (6, kv_heads, kv_heads))
    bias = DistanceBias(drawn(6, 7, seed=5)) if case == "bias" else None
    equation = Equation(query, key, value, visible, 0.5, bias)
    if case == "parts":
        # Near keys as they are, far ones rotated otherwise
        middle = (visible.position - 1).clamp_min(0)[None]
        near = Visible(torch.maximum(visible.start, middle), visible.stop, visible.position, TOKENS)
        far = Visible(visible.start, torch.minimum(visible.stop, middle), visible.position, TOKENS)
        rest = Rest(drawn(2, 6, TOKENS, SIZE, seed=8), drawn(2, kv_heads, TOKENS, SIZE, seed=9), value, far)
        equation = Equation(query, key, value, near, 0.5, more=(rest,))
    order = []

    def solve(segment: Equation, heads: slice) -> Tensor:
        order.append((heads, segment.visible.queries, segment.visible.keys))
        return attention(segment, implementation="reference")[0]

    found = within_segments(equation, SHARES, solve)
    expected = looped(equation, equation.parts)
    torch.testing.assert_close(found.double(), expected, atol=2e-6, rtol=2e-6)
    assert order == [(slice(0, 3), 4, 4), (slice(0, 3), 5, 5), *((slice(3, 6), n, n) for n in (2, 4, 3))]
