"""Gradients of attention over a few queries at a time: O(L) extra memory, blocks of weights are computed again on the way back.

dV = P^T dO,   dS = P (dO V^T - rowsum(dO O)),   dq = g scale dS K,   dk = g scale dS^T q,   dg = sum_j dS_ij S_ij / g
dbias(distance) = sum of g dS over the pairs at that distance                                             S the logits
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from lengthwise.attention.bias import DistanceBias, add_diagonals
from lengthwise.attention.blocks import CPU_BLOCK, CUDA_BLOCK, Region, blockwise, folded, logit_blocks, of_heads, regions_of
from lengthwise.attention.equation import Equation
from lengthwise.attention.reference import reference
from lengthwise.attention.statistics import RowStatistics, join


def with_gradient(equation: Equation, statistics: bool = False) -> tuple[Tensor, RowStatistics | None]:
    """Exact attention over a few queries at a time, every slot differentiable."""
    bias, g = equation.bias, equation.inverse_temperature
    learns_bias = bias is not None and bias.table.requires_grad
    if (
        statistics
        or equation.dropout > 0
        or equation.query.dtype == torch.float64
        or (learns_bias and not equation.visible.cpu.in_line)
        or (g is not None and g.requires_grad and not bool((g > 0).all()))
    ):
        return _checkpointed(equation, statistics)
    shape, equation = equation.query.shape[:3], folded(equation)
    table = None if equation.bias is None else equation.bias.table
    output = _Blockwise.apply(equation, equation.query, equation.key, equation.value, table, equation.inverse_temperature)  # type: ignore[no-untyped-call]
    return output.view(*shape, output.shape[-1]), None


class _Blockwise(torch.autograd.Function):
    """`blockwise` with the way back."""

    @staticmethod
    def forward(ctx: Any, equation: Equation, *tensors: Tensor | None) -> Tensor:
        output, _ = blockwise(equation)
        ctx.visible, ctx.scale = equation.visible, equation.scale
        ctx.save_for_backward(*tensors, output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, table, g, output = ctx.saved_tensors
        equation = Equation(query, key, value, ctx.visible, ctx.scale, None if table is None else DistanceBias(table), g)
        empty = (equation.visible.count == 0)[:, None, :, None]
        back = _WayBack(equation, output, d_output.masked_fill(empty, 0.0), ctx.needs_input_grad[1:])
        for region, block in logit_blocks(equation, regions_of(equation)):
            back.through(region, block)
        tensors = (query, key, value, table, g)
        return None, *(
            None if d is None else d.sum_to_size(t.shape).to(t.dtype) for d, t in zip(back.all, tensors, strict=True)
        )


class _WayBack:
    """Gradients of the five tensors, added up block by block in float32."""

    def __init__(self, equation: Equation, output: Tensor, d_output: Tensor, wanted: tuple[bool, ...]) -> None:
        self.equation, self.output, self.d_output = equation, output, d_output
        zeros = [
            tensor.new_zeros(tensor.shape, dtype=torch.float32) for tensor in (equation.query, equation.key, equation.value)
        ]
        self.query, self.key, self.value = zeros
        table = equation.bias.table if equation.bias is not None and wanted[3] else None
        self.table = None if table is None else torch.zeros_like(table, dtype=torch.float32)
        self.g = equation.query.new_zeros(equation.query.shape[:3], dtype=torch.float32) if wanted[4] else None

    @property
    def all(self) -> tuple[Tensor | None, ...]:
        return self.query, self.key, self.value, self.table, self.g

    def through(self, region: Region, logits: Tensor) -> None:  # [heads, queries, keys], the queries reversed
        equation, group = self.equation, self.equation.group
        shared = slice(region.heads.start // group, -(-region.heads.stop // group))
        query, d_output, output = (t[region.index].flip(1).float() for t in (equation.query, self.d_output, self.output))
        key, value = of_heads(equation, equation.key, region), of_heads(equation, equation.value, region)
        weights = torch.softmax(logits, -1)
        self.value[region.batch, shared, region.keys] += _over_groups(weights.mT @ d_output, group)
        d_logits = torch.bmm(d_output, value.mT).sub_((d_output * output).sum(-1, keepdim=True)).mul_(weights)
        g = self._rows_of_g(region)
        if self.g is not None:
            self.g[region.index] = (torch.linalg.vecdot(d_logits, logits) / g).flip(-1)
        d_logits.mul_(g[..., None])
        if self.table is not None:
            add_diagonals(self.table[region.heads], region.keys.start - region.last, d_logits)
        self.query[region.index] += equation.scale * torch.bmm(d_logits, key).flip(1)
        self.key[region.batch, shared, region.keys] += equation.scale * _over_groups(d_logits.mT @ query, group)

    def _rows_of_g(self, region: Region) -> Tensor:  # [heads, queries], the queries reversed
        g = self.equation.inverse_temperature
        if g is None:
            return self.d_output.new_ones((1, 1), dtype=torch.float32)
        return g.float().expand(self.equation.query.shape[:3])[region.index].flip(-1)


def _over_groups(by_head: Tensor, group: int) -> Tensor:  # [heads, ...] -> [kv_heads, ...]
    return by_head if group == 1 else by_head.view(-1, group, *by_head.shape[1:]).sum(1)


def _solved(_: Tensor, block: Equation) -> tuple[Tensor, RowStatistics]:
    return reference(block)


def _checkpointed(equation: Equation, statistics: bool) -> tuple[Tensor, RowStatistics | None]:
    """The reference on a few queries at a time, recomputed in the backward pass so that no block's weights are kept."""
    rows = equation.query.shape[0] * equation.query.shape[1]
    step = max(1, (CUDA_BLOCK if equation.query.is_cuda else CPU_BLOCK) // max(1, rows * equation.visible.keys))
    outputs, found = [], []
    for first in range(0, equation.visible.queries, step):
        block = equation.rows(first, min(first + step, equation.visible.queries))
        # A tensor beside it, by which a checkpoint knows the device whose random numbers dropout must draw again
        output, row = checkpoint(_solved, block.query, block, use_reentrant=False)
        outputs.append(output)
        found.append(row)
    return torch.cat(outputs, 2), join(found, 2) if statistics else None
