"""Whole matrices of logits, for gradients on a CPU: faster than going over blocks while they fit, as PyTorch's own way is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout

from lengthwise.attention.bias import DistanceBias, add_diagonals, toeplitz
from lengthwise.attention.equation import Equation
from lengthwise.attention.visible import Visible

MOST = 2**26  # logits of a layer


def why_not_dense(equation: Equation) -> str | None:
    """None when `dense` is worth taking, else the reason in words."""
    if equation.query.device.type != "cpu" or not equation.needs_grad:
        return "it is for gradients on a CPU"
    logits = equation.query[..., 0].numel() * equation.visible.keys
    if equation.bias is None or not equation.visible.in_line or equation.query.dtype == torch.float64:
        return "it needs a bias, and queries that stand one after the other"
    return f"{logits:,} logits are too many" if logits > MOST else None


def dense(equation: Equation) -> Tensor:  # [batch, heads, queries, value_size]
    """Output by whole matrices; every slot differentiable."""
    # In 16 bits logits and weights would be rounded; in PyTorch's own gradients on a CPU they are not
    query = equation.query.float()
    key, value = (tensor.repeat_interleave(equation.group, 1).float() for tensor in (equation.key, equation.value))
    assert equation.bias is not None
    bias = _matrix(equation.bias, int(equation.visible.position[0]), equation.visible.queries, equation.visible.keys)
    logits = ((equation.scale * query) @ key.mT).add_(bias)
    if equation.inverse_temperature is not None:
        logits = logits * equation.inverse_temperature.to(logits)[..., None]
    full = equation.visible.is_full
    if not full:
        # Added, not filled in: that way a gradient passes without a look at the mask
        logits = logits.add_(_hiding(equation.visible, equation.bias))
    weights = dropout(torch.softmax(logits, -1), equation.dropout)
    output = (weights @ value).to(equation.query.dtype)
    return output if full else output.masked_fill((equation.visible.count == 0)[:, None, :, None], 0.0)


def _hiding(visible: Visible, bias: DistanceBias) -> Tensor:  # [batch or 1, 1, queries, keys]
    """What hides keys when it is added to logits, made once for layers that share a bias and gone with it."""
    kept: tuple[Visible, Tensor] | None = bias.__dict__.get("_hiding")
    if kept is None or kept[0] is not visible:
        seen = visible.mask()[:, None]
        # Half of the least number: what is added to it must not reach -inf
        least = torch.finfo(torch.float32).min / 2
        kept = visible, torch.zeros_like(seen, dtype=torch.float32).masked_fill(~seen, least)
        bias.__dict__["_hiding"] = kept
    return kept[1]


def _matrix(bias: DistanceBias, first: int, queries: int, keys: int) -> Tensor:  # [heads, queries, keys]
    """The bias of every pair, made once for layers that share it, so that its gradient is gathered once."""
    made: dict[tuple[int | None, ...], Tensor] = bias.__dict__.setdefault("_matrices", {})
    key = (first, queries, keys, None if bias.table.is_inference() else bias.table._version)
    if key not in made:
        made[key] = _Matrix.apply(bias.table, first, queries, keys, made)  # type: ignore[no-untyped-call]
    return made[key]


class _Matrix(torch.autograd.Function):
    """A table over distances as a matrix, and the sum over diagonals that is its gradient; after that it is `made` anew.

    No tensor is kept for the way back: a layer that is computed again may find the matrix made, or not, where it had been.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, first: int, queries: int, keys: int, made: dict[Any, Tensor]) -> Tensor:
        ctx.made, ctx.like, ctx.start = made, (table.shape, table.dtype), 1 - queries - first
        line = DistanceBias(table.float()).line(ctx.start, keys - 1 - first)
        return toeplitz(line.contiguous(), queries, keys).flip(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        ctx.made.clear()
        shape, dtype = ctx.like
        table = grad.new_zeros(shape, dtype=torch.float32)
        add_diagonals(table, ctx.start, grad.flip(-2))
        return table.to(dtype), None, None, None, None
