"""Choose an implementation of the equation. One that is named runs or raises; only `auto` chooses."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from lengthwise.attention import autocast, blocks, blocks_gradient, dense, fused
from lengthwise.attention.equation import Equation
from lengthwise.attention.operators import attention_in_graph, scan_in_graph
from lengthwise.attention.reference import reference
from lengthwise.attention.statistics import RowStatistics, merge, merged
from lengthwise.attention.triton import launch
from lengthwise.errors import BadInput

IMPLEMENTATIONS = ("auto", "reference", "fused", "dense", "blockwise", "triton")

# Logits that fit anywhere, as those of one query and a window of keys do: going over blocks would cost more than it saves
SMALL = 2**17
# Where PyTorch's kernels can compute the equation too: keys from which ours are faster on an H200, without and with a gradient,
# for heads up to a size. Larger heads are PyTorch's (32,768 keys, heads of 128: a Llama takes 279 ms, and 323 with ours)
OURS_FROM = {64: (4096, 8192)}
BLOCK = 128  # queries at least


def attention(
    equation: Equation, *, statistics: bool = False, implementation: str = "auto"
) -> tuple[Tensor, RowStatistics | None]:
    """Output [batch, heads, queries, value_size] and, when asked for, the statistics of every row."""
    if implementation not in IMPLEMENTATIONS:
        raise BadInput(f"no attention implementation {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    if equation.more:
        kernels = implementation == "triton" or (implementation == "auto" and equation.query.is_cuda)
        only_output = not (statistics or torch.compiler.is_compiling())
        if kernels and only_output and (joined := launch.over_runs(equation.parts)) is not None:
            return joined, None
        solved = [attention(part, statistics=True, implementation=implementation) for part in equation.parts]
        output, rows = merged([(output, rows) for output, rows in solved if rows is not None])
        return output, rows if statistics else None
    compiling = torch.compiler.is_compiling()
    ours = equation.query.is_cuda and implementation == "auto" and (statistics or equation.bias is not None)
    if (ours or implementation == "triton") and not compiling and (found := launch.again(equation, statistics)) is not None:
        return found
    if _is_empty(equation):
        return _zeros(equation), _no_rows(equation) if statistics else None
    if compiling:
        return attention_in_graph(equation, statistics, implementation)
    implementation = chosen(equation, statistics, implementation)
    if implementation == "triton":
        return launch.triton(equation, statistics)
    if implementation == "fused":
        return fused.fused(equation), None
    with autocast.off(equation.query.device.type):
        if implementation == "dense":
            return dense.dense(equation), None
        if implementation == "blockwise":
            differentiable = equation.needs_grad or equation.dropout > 0
            return (blocks_gradient.with_gradient if differentiable else blocks.blockwise)(equation, statistics)
        output, rows = reference(equation)
        return output, rows if statistics else None


def chosen(equation: Equation, statistics: bool, implementation: str) -> str:
    """The implementation that solves an equation: the one that is named, if it can, or for `auto` the best that can."""
    if implementation == "triton":
        launch.require_triton(equation, statistics)
    elif implementation == "fused":
        launch.refuse("fused", "it returns no statistics" if statistics else fused.why_not_fused(equation))
    elif implementation == "dense":
        launch.refuse("dense", "it returns no statistics" if statistics else dense.why_not_dense(equation))
    if implementation != "auto":
        return implementation
    if equation.query.is_cuda and launch.why_not_triton(equation, statistics) is None and worth_a_kernel(equation, statistics):
        return "triton"
    if not statistics and fused.why_not_fused(equation) is None:
        return "fused"
    if not statistics and dense.why_not_dense(equation) is None:
        return "dense"
    small = equation.query[..., 0].numel() * equation.visible.keys <= SMALL
    return "reference" if small else "blockwise"


def worth_a_kernel(equation: Equation, statistics: bool) -> bool:
    """Whether our kernels are the fastest that can solve an equation on a GPU."""
    if statistics or equation.bias is not None:
        return True
    limits = next((limits for size, limits in OURS_FROM.items() if equation.query.shape[-1] <= size), None)
    long = limits is not None and equation.visible.keys >= limits[equation.needs_grad]
    return (long and equation.visible.queries >= BLOCK) or fused.why_not_fused(equation) is not None


def scan(equation: Equation, inverse_temperatures: Tensor) -> RowStatistics:  # fields [temperatures, batch, heads, queries]
    """Statistics at several temperatures in one pass over the logits; see `blocks.scan`."""
    if not torch.compiler.is_compiling() and bool((inverse_temperatures < 0).any()):
        raise BadInput(f"a scan needs inverse temperatures >= 0, not {float(inverse_temperatures.min()):g}")
    return reduce(merge, [_scan(part, inverse_temperatures) for part in equation.parts])


def _scan(equation: Equation, inverse_temperatures: Tensor) -> RowStatistics:
    if _is_empty(equation):
        return _no_rows(equation, inverse_temperatures.shape[0]).map(Tensor.float)
    if torch.compiler.is_compiling():
        return scan_in_graph(equation, inverse_temperatures)
    if equation.query.is_cuda and launch.why_no_scan(equation) is None:
        return launch.scan(equation, inverse_temperatures)
    with autocast.off(equation.query.device.type):
        return blocks.scan(equation, inverse_temperatures)


def _is_empty(equation: Equation) -> bool:
    """Whether there are no rows, or no keys for them."""
    return 0 in equation.query.shape[:3] or equation.key.shape[2] == 0


def _zeros(equation: Equation) -> Tensor:  # [batch, heads, queries, value_size]
    output = equation.query.new_zeros(*equation.query.shape[:3], equation.value.shape[-1])
    # Gradients of nothing are zeros, not an error
    return output + sum(tensor[..., :0].sum() for tensor in equation.tensors) if equation.needs_grad else output


def _no_rows(equation: Equation, *temperatures: int) -> RowStatistics:
    wide = torch.promote_types(equation.query.dtype, torch.float32)
    zeros = equation.query.new_zeros((*temperatures, *equation.query.shape[:3]), dtype=wide)
    return RowStatistics(zeros, torch.full_like(zeros, float("-inf")), zeros.clone())
