"""Attention within segments: tokens of one see none of another's, so each segment is a small equation of its own.

Different heads may be cut at different places. Nothing outside a segment is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention.bias import DistanceBias
from lengthwise.attention.equation import Equation, Rest
from lengthwise.attention.visible import Visible

Span = tuple[int, int]  # first token, and one past the last


def within_segments(
    equation: Equation, shares: Sequence[Sequence[Span]], solve: Callable[[Equation, slice], Tensor]
) -> Tensor:  # [batch, heads, queries, value_size]
    """Solve each segment by itself. Each list of spans cuts an equal share of the heads; `solve` gets a segment and heads."""
    total, outputs = equation.query.shape[1], []
    for number, spans in enumerate(shares):
        heads = slice(number * total // len(shares), (number + 1) * total // len(shares))
        part = _of_heads(equation, heads)
        outputs.append(torch.cat([solve(_segment(part, *span), heads) for span in spans], 2))
    return torch.cat(outputs, 1)


def _of_heads(equation: Equation, heads: slice) -> Equation:
    group, bias = equation.group, equation.bias

    def shared(tensor: Tensor) -> Tensor:
        if heads.start % group or heads.stop % group:
            # The cut goes through heads that share a key head
            return tensor.repeat_interleave(group, 1)[:, heads]
        return tensor[:, heads.start // group : heads.stop // group]

    more = (Rest(rest.query[:, heads], shared(rest.key), shared(rest.value), rest.visible) for rest in equation.more)
    return replace(
        equation,
        query=equation.query[:, heads],
        key=shared(equation.key),
        value=shared(equation.value),
        bias=None if bias is None else DistanceBias(bias.table[heads]),
        more=tuple(more),
    )


def _segment(equation: Equation, first: int, last: int) -> Equation:
    """The equation of the queries and keys first ... last - 1 alone."""
    more = (replace(rest.rows(first, last), **_keys(rest, first, last)) for rest in equation.more)
    return replace(equation.rows(first, last), **_keys(equation, first, last), more=tuple(more))


def _keys(run: Equation | Rest, first: int, last: int) -> dict[str, Any]:
    seen, size = run.visible.rows(first, last), last - first
    hidden = None if seen.hidden is None else seen.hidden[:, first:last]
    start, stop = ((end - first).clamp(0, size) for end in (seen.start, seen.stop))
    visible = seen.standing_as_here(Visible(start, stop, seen.position - first, size, hidden))
    return {"key": run.key[:, :, first:last], "value": run.value[:, :, first:last], "visible": visible}
