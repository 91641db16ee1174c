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
from lengthwise.attention.triton.forward import prepared
from lengthwise.attention.triton.key_bounds import query_bounds
from lengthwise.attention.triton.launch import NO_ROWS, products, several_gpus
from lengthwise.attention.triton.operands import Operands, launch, recorded
from lengthwise.attention.triton.tiles import INTERPRETED, LOT

__all__ = ["Needs", "Operands", "backward", "by_heads", "by_rows", "known", "known_after"]


class Plan(NamedTuple):
    """Launches but for their tensors, and the shapes of what they write."""

    runs: tuple[Callable[..., Any], ...]
    numbers: tuple[tuple[Any, ...], ...]
    shapes: tuple[Any, ...]


# A plan, where there is one, and its name
Known = tuple[Plan | None, tuple[Any, ...]]

# By all that chooses kernels and numbers
_plans: dict[tuple[Any, ...], Plan] = {}
_MOST = 4096


def known(operands: Operands, *more: Any) -> Known:
    """The plan for operands and what is wanted of them, where there is one, and its name."""
    return _found(_name(operands, *more), operands.query.device)


def known_after(forward: tuple[Any, ...], needs: Needs, grad: Tensor) -> Known:
    """The plan of a backward pass, by the name of its forward pass, whose outputs it reads as they came."""
    return _found((forward, needs, grad.stride(), grad.dtype, grad.data_ptr() % 16), grad.device)


def _found(name: tuple[Any, ...], device: torch.device) -> Known:
    elsewhere = device.type == "cuda" and several_gpus() and device.index != torch.cuda.current_device()
    return None if elsewhere else _plans.get(name), name


def by_heads(operands: Operands, want: int, by: Known) -> tuple[Tensor, Tensor | None]:
    """Output [batch, heads, queries, size] and rows as `want` says, by what `known` says of these operands."""
    return _forward(operands, want, by, 1)


def by_rows(operands: Operands, want: int, by: Known) -> tuple[Tensor, Tensor | None]:
    """The same output, the same memory, as [batch, queries, heads, size]."""
    return _forward(operands, want, by, 0)


def _forward(operands: Operands, want: int, by: Known, view: int) -> tuple[Tensor, Tensor | None]:
    plan, name = by
    if plan is None:
        out, rows, kernel, programs, tensors, numbers, tile = prepared(operands, want)
        run = launch(kernel, programs, tensors, numbers, tile)
        _keep(name, Plan((run[programs, 1, 1],), (numbers,), tuple(map(_layout, (out, out.transpose(1, 2), rows)))))
        return out.transpose(1, 2) if view else out, rows
    query, shapes = operands.query, plan.shapes
    # Made as it is returned: a transposed view of it would take as long as a third of a launch
    out = query.new_empty_strided(*shapes[view])
    rows = None if want == NO_ROWS else query.new_empty_strided(*shapes[2], dtype=torch.float32)
    place, written = pointer(query), pointer(out)
    plan.runs[0](
        place, operands.key, operands.value, written, written if rows is None else pointer(rows),
        *operands.slots(place), *plan.numbers[0],
    )  # fmt: skip
    return out, rows


def backward(
    operands: Operands,
    grad: Tensor,
    out: Tensor,
    lse: Tensor,
    needs: Needs,
    by: Known | None = None,
    d_lse: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """What `backward.backward` returns; the long way with a gradient of g, or where the band takes several launches."""
    plan, name = known(operands, needs, grad, out, lse) if by is None else by
    if plan is None:
        with recorded() as launches:
            found = slow.backward(operands, grad, out, lse, needs, d_lse)
        usual = [kernel for kernel, *_ in launches] == [slow._prepare, by_key, by_query] and not needs.g
        if usual and needs.query and grad.stride(-1) == 1:
            _keep(name, _backward_plan(launches, operands, needs))
        return found
    query, (stored, of_words, of_keys, of_queries, band_shape) = operands.query, plan.shapes
    lse2, delta = lse.new_empty_strided(*stored), lse.new_empty_strided(*stored)
    place, rows = pointer(query), (pointer(lse2), pointer(delta))
    slots = operands.slots(place)
    words = None if operands.seed is None else lse.new_empty_strided(*of_words, dtype=torch.int32)
    worded = place if words is None else pointer(words)
    plan.runs[0](out, grad, lse, *rows, worded, slots[-1], *plan.numbers[0])
    slow.add_d_lse(delta, lse, d_lse)
    dk, dv = query.new_empty_strided(*of_keys), query.new_empty_strided(*of_keys)
    dq = query.new_empty_strided(*of_queries)
    given = (place, operands.key, operands.value, grad, *rows)
    bounds = query_bounds(operands, slow.tile_for(query.shape[-1], query.dtype, products(query.dtype)))
    plan.runs[1](*given, pointer(dk), pointer(dv), bounds, *slots[:-1], worded, *plan.numbers[1])
    band = torch.zeros(band_shape, dtype=torch.float32, device=query.device) if needs.table else None
    written = pointer(dq)
    plan.runs[2](*given, written, written, written if band is None else pointer(band), *slots, *plan.numbers[2])
    d_table = None if band is None else band.view(query.shape[0], -1, *band.shape[1:]).sum((0, 2))
    return dq, dk, dv, d_table, None


def _backward_plan(launches: list[tuple[Any, ...]], operands: Operands, needs: Needs) -> Plan:
    """The plan of a backward pass, from the launches that `backward.backward` made for it."""
    (batch, heads, queries, size), (_, kv_heads, keys, _) = operands.query.shape, operands.key.shape
    stored = -(-queries // LOT.value) * LOT.value
    band = (batch * heads, queries, 2 * operands.radius + 1) if needs.table else None
    # Gradients lie in memory as models have their queries and keys: [batch, tokens, heads, size]
    of_keys = (batch, kv_heads, keys, size), (keys * kv_heads * size, size, kv_heads * size, 1)
    of_queries = (batch, heads, queries, size), (queries * heads * size, size, heads * size, 1)
    of_words = (batch, heads, 2, stored), (heads * 2 * stored, 2 * stored, stored, 1)
    shapes = ((batch, heads, stored), (heads * stored, stored, 1)), of_words, of_keys, of_queries, band
    return Plan(tuple(run for _, run, _ in launches), tuple(numbers for *_, numbers in launches), shapes)


def _layout(tensor: Tensor | None) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and strides, as tuples: PyTorch takes longer to read a Size."""
    return None if tensor is None else (tuple(tensor.shape), tensor.stride())


def pointer(tensor: Tensor) -> Any:
    """A tensor as kernels take it that is known to lie on their device: a driver asked where it lies takes a while."""
    return tensor if INTERPRETED else tensor.data_ptr()


def _name(operands: Operands, *more: Any) -> tuple[Any, ...]:
    """All that chooses kernels and numbers; `more` are tensors and what is wanted of them."""
    query, key, value, keys, scale, runs, offset, hidden, table, radius, g, _, _, dropout = operands
    address = query.data_ptr() | key.data_ptr() | value.data_ptr()
    wanted: list[Any] = []
    for part in more:
        if isinstance(part, Tensor):
            address |= part.data_ptr()
            wanted += part.shape, part.stride(), part.dtype
        else:
            wanted.append(part)
    dtype = query.dtype
    return (
        query.shape, key.shape, value.shape, query.stride(), key.stride(), value.stride(), dtype, key.dtype, value.dtype,
        address % 16, query.get_device(), products(dtype), keys, scale, offset, table is None, radius, dropout,
        None if runs is None else (runs.shape, runs.stride()), None if hidden is None else (hidden.shape, hidden.stride()),
        None if g is None else (g.shape, g.stride()), *wanted,
    )  # fmt: skip


def _keep(name: tuple[Any, ...], plan: Plan) -> None:
    if len(_plans) >= _MOST:
        _plans.clear()
    _plans[name] = plan
