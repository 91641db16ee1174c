"""The equation as operators of PyTorch: torch.compile, torch.export and CUDA graphs take a model with them in as one graph.

They hand the equation's tensors and numbers to `operators_run`, which solves it as it is solved without a graph. There they are
not used: calling an operator costs the host more than calling a function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention import operators_run
from lengthwise.attention.equation import Equation
from lengthwise.attention.fused import one_query
from lengthwise.attention.statistics import RowStatistics
from lengthwise.attention.triton.launch import ALL_ROWS, FIELDS, NO_ROWS, ONLY_LSE

# `Given` of operators_run
_GIVEN = (
    "Tensor query, Tensor key, Tensor value, Tensor? table, Tensor? g, Tensor? runs, Tensor? hidden, Tensor? seed, "
    "Tensor? bounds, int offset, int radius, float scale, float dropout, str implementation"
)
_LIBRARY: Any = torch.library.Library("lengthwise", "FRAGMENT")  # type: ignore[no-untyped-call]


def attention_in_graph(equation: Equation, statistics: bool, implementation: str) -> tuple[Tensor, RowStatistics | None]:
    """`attention` for code that is being traced."""
    if _is_a_token(equation) and not statistics and implementation == "auto":
        return one_query(equation), None
    learns, runs, hidden, offset, radius, table = equation.needs_grad, *_runs_and_table(equation)
    query, seed, bounds = equation.query, None, None
    if equation.dropout > 0:
        seed = torch.randint(2**31 - 1, (2,), device=query.device).int()
    if learns and runs is not None:
        # An operator of its own: layers share what is the same in all of them
        bounds = torch.ops.lengthwise.query_bounds(runs, equation.visible.keys, radius, query.shape[-1], query.dtype)
    output, rows = torch.ops.lengthwise.solve(
        query,
        equation.key,
        equation.value,
        table,
        equation.inverse_temperature,
        runs,
        hidden,
        seed,
        bounds,
        offset,
        radius,
        float(equation.scale),
        float(equation.dropout),
        implementation,
        ALL_ROWS if statistics else ONLY_LSE if learns else NO_ROWS,
    )
    return output, RowStatistics(*rows.unbind(0)) if statistics else None


def _is_a_token(equation: Equation) -> bool:
    """Whether this is one query of a generation, which PyTorch's own attention serves best."""
    alike = equation.query.dtype == equation.key.dtype == equation.value.dtype
    return equation.visible.queries == 1 and equation.bias is None and equation.dropout == 0 and alike


def scan_in_graph(equation: Equation, temperatures: Tensor) -> RowStatistics:
    """`scan` for code that is being traced."""
    runs, hidden, offset, radius, table = _runs_and_table(equation)
    query, key, scale = equation.query, equation.key, float(equation.scale)
    rows = torch.ops.lengthwise.scan(query, key, table, temperatures.float(), runs, hidden, offset, radius, scale)
    return RowStatistics(*rows.unbind(0))


def _runs_and_table(equation: Equation) -> tuple[Tensor | None, Tensor | None, int, int, Tensor | None]:
    """Runs, hidden keys, where the first query stands if there are no runs, the table's radius, and the widened table."""
    visible, bias = equation.visible, equation.bias
    first: int | None = visible.facts.get("full_from")
    runs = visible.packed if first is None else None
    hidden = None if visible.hidden is None else visible.flagged
    return runs, hidden, first or 0, 0 if bias is None else bias.radius, None if bias is None else bias.widened


def _by_rows(like: Tensor, size: int | None = None) -> Tensor:
    """Fresh memory for [batch, heads, rows, size] in the order [batch, rows, heads, size]."""
    batch, heads, rows, own = like.shape
    return like.new_empty((batch, rows, heads, own if size is None else size)).transpose(1, 2)


def _fake_solve(*given: Any) -> tuple[Tensor, Tensor]:
    query, value, want = given[0], given[2], given[-1]
    rows = query.new_empty((FIELDS[want], *query.shape[:3]), dtype=torch.float32)
    return _by_rows(query, value.shape[-1]), rows


def _fake_gradients(*given: Any) -> tuple[Tensor, ...]:
    needs: Sequence[bool] = given[-1]
    wanted = [tensor if needed else None for tensor, needed in zip(given[:5], needs, strict=True)]
    first = [given[0].new_empty(0) if tensor is None else _by_rows(tensor) for tensor in wanted[:3]]
    last = [given[0].new_empty(0) if tensor is None else tensor.new_empty(tensor.shape) for tensor in wanted[3:]]
    return (*first, *last)


def _fake_bounds(runs: Tensor, keys: int, radius: int, size: int, dtype: torch.dtype) -> Tensor:
    tile = operators_run.gradient_tile(runs, size, dtype)
    return runs.new_empty(0) if tile is None else runs.new_empty((runs.shape[0], -(-keys // tile.keys), 6))


def _fake_scan(*given: Any) -> Tensor:
    query, temperatures = given[0], given[3]
    fields: Tensor = query.new_empty((3, temperatures.shape[0], *query.shape[:3]), dtype=torch.float32)
    return fields


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:9], *output)
    # Only parts of rows are merged by their statistics, whose gradient costs more than that of the output alone
    ctx.set_materialize_grads(False)
    ctx.numbers = inputs[9:-1]


def _way_back(ctx: Any, grad: Tensor | None, grad_rows: Tensor | None) -> tuple[Tensor | None, ...]:
    *given, output, rows = ctx.saved_tensors
    grad = torch.zeros_like(output) if grad is None else grad
    needs = list(ctx.needs_input_grad[:5])
    found = torch.ops.lengthwise.gradients(*given, *ctx.numbers, grad, output, rows, grad_rows, needs)
    return *(d if needed else None for d, needed in zip(found, needs, strict=True)), *[None] * (len(ctx.numbers) + 5)


def _define(name: str, schema: str, run: Any, fake: Any) -> None:
    _LIBRARY.define(f"{name}{schema}", tags=(torch.Tag.needs_fixed_stride_order,))
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"lengthwise::{name}", fake, lib=_LIBRARY)


_define("solve", f"({_GIVEN}, int want) -> (Tensor, Tensor)", operators_run.solve, _fake_solve)
_define(
    "gradients",
    f"({_GIVEN}, Tensor grad, Tensor output, Tensor rows, Tensor? grad_rows, bool[] needs) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    operators_run.gradients,
    _fake_gradients,
)
_define(
    "query_bounds",
    "(Tensor runs, int keys, int radius, int size, ScalarType dtype) -> Tensor",
    operators_run.query_bounds,
    _fake_bounds,
)
_define(
    "scan",
    "(Tensor query, Tensor key, Tensor? table, Tensor temperatures, Tensor? runs, Tensor? hidden, int offset, int radius, "
    "float scale) -> Tensor",
    operators_run.scan,
    _fake_scan,
)
torch.library.register_autograd("lengthwise::solve", _way_back, setup_context=_keep, lib=_LIBRARY)
