"""Forward and backward with all that follows from shapes prepared once.

Short inputs wait for the host, not for the GPU: the first call of a kind finds kernels and their numbers, later ones make room
for results and launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lengthwise.attention.triton import backward as slow
from lengthwise.attention.triton.backward import Needs
from lengthwise.attention.triton.by_key import by_key
from lengthwise.attention.triton.by_query import by_query
from lengthwise.attention.triton.forward import NO_ROWS, prepared
from lengthwise.attention.triton.key_bounds import query_bounds
from lengthwise.attention.triton.launch import products
from lengthwise.attention.triton.operands import Operands, launch, recorded
from lengthwise.attention.triton.tiles import LOT


class Plan(NamedTuple):
    """Launches but for their tensors, and the shapes of what they write."""

    runs: tuple[Callable[..., Any], ...]
    numbers: tuple[tuple[Any, ...], ...]
    shapes: tuple[Any, ...]


# By all that chooses kernels and numbers
_plans: dict[tuple[Any, ...], Plan] = {}
_MOST = 4096


def known(operands: Operands, *more: Any) -> tuple[bool, tuple[Any, ...]]:
    """Whether there is a plan, and its name."""
    name = _name(operands, *more)
    return name in _plans, name


def forward(operands: Operands, want: int, name: tuple[Any, ...] | None = None) -> tuple[Tensor, Tensor | None]:
    """What `forward.forward` returns. `name` is the plan's, where the caller knows it."""
    name = _name(operands, want) if name is None else name
    plan = _plan(name, operands)
    if plan is None:
        out, rows, kernel, programs, tensors, numbers, tile = prepared(operands, want)
        run = launch(kernel, programs, tensors, numbers, tile)
        _keep(name, Plan((run[programs, 1, 1],), (numbers,), (out.shape, None if rows is None else rows.shape)))
        return out.transpose(1, 2), rows
    query, (shape, fields) = operands.query, plan.shapes
    out = torch.empty(shape, dtype=query.dtype, device=query.device)
    rows = None if want == NO_ROWS else torch.empty(fields, dtype=torch.float32, device=query.device)
    plan.runs[0](
        query, operands.key, operands.value, out, out if rows is None else rows,
        *operands.slots, operands.seed_slot, *plan.numbers[0],
    )  # fmt: skip
    return out.transpose(1, 2), rows


def backward(
    operands: Operands, grad: Tensor, out: Tensor, lse: Tensor, needs: Needs, name: tuple[Any, ...] | None = None
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """What `backward.backward` returns; the long way with a gradient of g, or where the band takes several launches."""
    name = _name(operands, needs, grad, out, lse) if name is None else name
    plan = _plan(name, operands)
    if plan is None:
        with recorded() as launches:
            found = slow.backward(operands, grad, out, lse, needs)
        usual = [kernel for kernel, *_ in launches] == [slow._prepare, by_key, by_query] and not needs.g
        if usual and needs.query and grad.stride(-1) == 1:
            _keep(name, _backward_plan(launches, operands, needs))
        return found
    query, (stored, of_keys, of_queries, band_shape) = operands.query, plan.shapes
    kind: dict[str, Any] = {"dtype": query.dtype, "device": query.device}
    lse2, delta = torch.empty(stored, dtype=torch.float32, device=query.device).unbind(0)
    plan.runs[0](out, grad, lse, lse2, delta, *plan.numbers[0])
    dk, dv, dq = torch.empty(of_keys, **kind), torch.empty(of_keys, **kind), torch.empty(of_queries, **kind)
    given, slots = (query, operands.key, operands.value, grad, lse2, delta), (*operands.slots, operands.seed_slot)
    bounds = query_bounds(operands, slow.tile_for(query.shape[-1], query.dtype, operands.drops, products(query.dtype)))
    plan.runs[1](*given, dk, dv, dk, dk, dk, bounds, *slots, *plan.numbers[1])
    band = torch.zeros(band_shape, dtype=torch.float32, device=query.device) if needs.table else None
    plan.runs[2](*given, dq, dq, dq if band is None else band, *slots, *plan.numbers[2])
    d_table = None if band is None else band.view(query.shape[0], -1, *band.shape[1:]).sum((0, 2))
    return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2), d_table, None


def _backward_plan(launches: list[tuple[Any, ...]], operands: Operands, needs: Needs) -> Plan:
    """Of what the long way launched."""
    (batch, heads, queries, size), (_, kv_heads, keys, _) = operands.query.shape, operands.key.shape
    stored = -(-queries // LOT.value) * LOT.value
    band = (batch * heads, queries, 2 * operands.radius + 1) if needs.table else None
    shapes = (2, batch, heads, stored), (batch, keys, kv_heads, size), (batch, queries, heads, size), band
    return Plan(tuple(run for _, run, _ in launches), tuple(numbers for *_, numbers in launches), shapes)


def _name(operands: Operands, *more: Any) -> tuple[Any, ...]:
    """All that chooses kernels and numbers; `more` are tensors and what is wanted of them."""
    query, key, value = operands[:3]
    given = (query, key, value, *(part for part in more if isinstance(part, Tensor)))
    address = 0
    for tensor in given:
        address |= tensor.data_ptr()
    wanted = [part for part in more if not isinstance(part, Tensor)]
    kinds = [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in (*given, *operands.slots, operands.seed_slot)]
    numbers = (operands.keys, operands.scale, operands.offset, operands.radius, operands.dropout)
    return (*kinds, *numbers, *wanted, address % 16, query.device, products(query.dtype))


def _plan(name: tuple[Any, ...], operands: Operands) -> Plan | None:
    device = operands.query.device
    elsewhere = device.type == "cuda" and device.index != torch.cuda.current_device()
    return None if elsewhere else _plans.get(name)


def _keep(name: tuple[Any, ...], plan: Plan) -> None:
    if len(_plans) >= _MOST:
        _plans.clear()
    _plans[name] = plan
