"""Choose an implementation of the equation. One that is named runs or raises; only `auto` chooses."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import reduce

import torch
from torch import Tensor

from lengthwise.attention import cpu, gpu
from lengthwise.attention.equation import Equation
from lengthwise.attention.reference import reference
from lengthwise.attention.statistics import RowStatistics, merge, merged
from lengthwise.errors import BadInput

IMPLEMENTATIONS = ("auto", "reference", "fused", "blockwise", "triton")

# Logits that fit anywhere, as those of one query and a window of keys do: going over blocks would cost more than it saves
SMALL = 2**17
# From here on our kernel beats PyTorch's flash attention even where that can compute the equation, for blocks of queries
LONG, BLOCK = 4096, 128


def attention(
    equation: Equation, *, statistics: bool = False, implementation: str = "auto"
) -> tuple[Tensor, RowStatistics | None]:
    """Output [batch, heads, queries, value_size] and, when asked for, the statistics of every row."""
    if implementation not in IMPLEMENTATIONS:
        raise BadInput(f"no attention implementation {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    if equation.more:
        solved = [attention(part, statistics=True, implementation=implementation) for part in equation.parts]
        output, rows = merged([(output, rows) for output, rows in solved if rows is not None])
        return output, rows if statistics else None
    if _nothing_in(equation):
        return _nothing(equation, statistics)
    chosen = _chosen(equation, statistics) if implementation == "auto" else implementation
    if chosen == "triton":
        _refuse("triton", gpu.why_not_triton(equation, statistics))
        return gpu.triton(equation, statistics)
    if chosen == "fused":
        _refuse("fused", "it returns no statistics" if statistics else cpu.why_not_fused(equation))
        narrow = _cast(equation)
        with _no_autocast(equation.query.device.type):
            return cpu.fused(narrow).to(equation.query.dtype), None
    with _no_autocast(equation.query.device.type):
        if chosen == "blockwise":
            return cpu.blockwise(equation, statistics)
        output, rows = reference(equation)
        return output, rows if statistics else None


def _chosen(equation: Equation, statistics: bool) -> str:
    if equation.query.is_cuda and gpu.why_not_triton(equation, statistics) is None and _worth_a_kernel(equation, statistics):
        return "triton"
    if not statistics and cpu.why_not_fused(equation) is None:
        return "fused"
    small = equation.query[..., 0].numel() * equation.visible.keys <= SMALL
    return "reference" if small else "blockwise"


def _worth_a_kernel(equation: Equation, statistics: bool) -> bool:
    if statistics or equation.bias is not None:
        return True
    long = equation.visible.keys >= LONG and equation.visible.queries >= BLOCK
    return long or cpu.why_not_fused(equation) is not None


def _refuse(implementation: str, reason: str | None) -> None:
    if reason is not None:
        raise BadInput(f"attention implementation {implementation!r} cannot run here: {reason}; use 'blockwise' or 'auto'")


def scan(equation: Equation, inverse_temperatures: Tensor) -> RowStatistics:  # fields [temperatures, batch, heads, queries]
    """Statistics at several temperatures in one pass over the logits; see `cpu.scan`."""
    if bool((inverse_temperatures < 0).any()):
        raise BadInput(f"a scan needs inverse temperatures >= 0, not {float(inverse_temperatures.min()):g}")
    return reduce(merge, [_scan(part, inverse_temperatures) for part in equation.parts])


def _scan(equation: Equation, inverse_temperatures: Tensor) -> RowStatistics:
    if _nothing_in(equation):
        return _no_rows(equation, torch.float32, inverse_temperatures.shape[0])
    if equation.query.is_cuda and gpu.why_no_scan(equation) is None:
        return gpu.scan(equation, inverse_temperatures)
    with _no_autocast(equation.query.device.type):
        return cpu.scan(equation, inverse_temperatures)


def _no_autocast(device: str) -> AbstractContextManager[object]:
    """Logits are float32 whatever autocast says: in bfloat16 a hidden one would be -inf and its entropy NaN."""
    return torch.autocast(device, enabled=False) if _autocast_on(device) else nullcontext()


def _autocast_on(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _cast(equation: Equation) -> Equation:
    """What autocast makes of SDPA's tensors, but for the bias: its view would be written out as a whole matrix."""
    device, given = equation.query.device.type, (equation.query, equation.key, equation.value)
    if not _autocast_on(device) or torch.float64 in {tensor.dtype for tensor in given}:
        return equation
    query, key, value = (tensor.to(torch.get_autocast_dtype(device)) for tensor in given)
    return replace(equation, query=query, key=key, value=value)


def _nothing_in(equation: Equation) -> bool:
    """No rows, or no keys for them."""
    return 0 in equation.query.shape[:3] or equation.key.shape[2] == 0


def _nothing(equation: Equation, statistics: bool) -> tuple[Tensor, RowStatistics | None]:
    query, value = equation.query, equation.value
    output = query.new_zeros(*query.shape[:3], value.shape[-1])
    if equation.needs_grad:
        # Gradients of nothing are zeros, not an error
        table = equation.bias.table if equation.bias else None
        given = [tensor for tensor in (query, equation.key, value, table, equation.inverse_temperature) if tensor is not None]
        output = output + sum(tensor[..., :0].sum() for tensor in given)
    wide = torch.promote_types(query.dtype, torch.float32)
    return output, _no_rows(equation, wide) if statistics else None


def _no_rows(equation: Equation, dtype: torch.dtype, *temperatures: int) -> RowStatistics:
    shape = (*temperatures, *equation.query.shape[:3])
    low = equation.query.new_full(shape, float("-inf"), dtype=dtype)
    return RowStatistics(low, low.clone(), torch.zeros_like(low))
