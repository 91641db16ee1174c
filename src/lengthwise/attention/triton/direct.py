"""The shortest way to the forward kernel, for biased attention without gradient, temperature, dropout and statistics.

Short inputs wait for the host, not for the GPU: what follows from shapes is prepared once, so that a call makes room for its
output and launches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention.bias import DistanceBias
from lengthwise.attention.equation import Equation
from lengthwise.attention.triton import launch
from lengthwise.attention.visible import Visible


@dataclass(frozen=True)
class Plan:
    """A launch of the forward kernel but for its tensors."""

    run: Callable[..., Any]
    shape: tuple[int, ...]
    numbers: tuple[Any, ...]


# By all that chooses a kernel and its numbers; None where it cannot run
_plans: dict[tuple[Any, ...], Plan | None] = {}
_MOST = 4096


def direct(
    query: Tensor, key: Tensor, value: Tensor, visible: Visible, wide: Tensor, radius: int, scale: float
) -> Tensor | None:  # [batch, queries, heads, size]
    """The output, in the order a model goes on with; None where the kernel cannot compute it. `wide` is a widened table."""
    runs, hidden, signature = visible.for_kernels
    chosen = (
        query.shape, key.shape, value.shape, query.stride(), key.stride(), value.stride(), query.dtype, key.dtype, value.dtype,
        query.device, signature, radius, scale, (query.data_ptr() | key.data_ptr() | value.data_ptr()) % 16,
        launch.products(query.dtype),
    )  # fmt: skip
    if chosen not in _plans:
        if len(_plans) >= _MOST:
            _plans.clear()
        _plans[chosen] = _prepared(query, key, value, visible, wide, radius, scale)
    plan = _plans[chosen]
    if plan is None or (query.is_cuda and query.device.index != torch.cuda.current_device()):
        return None
    out = torch.empty(plan.shape, dtype=query.dtype, device=query.device)
    any_runs, any_hidden = query if runs is None else runs, query if hidden is None else hidden
    plan.run(query, key, value, out, out, wide, query, any_runs, any_hidden, query, *plan.numbers)
    return out


def _prepared(
    query: Tensor, key: Tensor, value: Tensor, visible: Visible, wide: Tensor, radius: int, scale: float
) -> Plan | None:
    from lengthwise.attention.triton import tiles
    from lengthwise.attention.triton.forward import NO_ROWS, prepared

    bias = DistanceBias.of_widened(wide[0, :, 0], radius)
    equation = Equation(query, key, value, visible, scale, bias)
    tensors = (query, key, value)
    if launch.why_not_triton(equation) is not None or any(t.stride(-1) != 1 or t.data_ptr() % 16 for t in tensors):
        return None
    out, _, kernel, programs, given, numbers, tile = prepared(launch.operands_of(equation, None), NO_ROWS)
    return Plan(tiles.launch(kernel, programs, given, numbers, tile)[programs, 1, 1], tuple(out.shape), numbers)
