"""The equation on a GPU, by kernels of our own in Triton; see `forward`, `backward` and `scan`.

Triton is imported when a kernel is first asked for. Where there is no GPU its interpreter can run the kernels, slowly
(TRITON_INTERPRET=1 before Triton is imported): that is how the tests check them anywhere.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import lru_cache, reduce
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lengthwise.attention.equation import Equation
from lengthwise.attention.statistics import RowStatistics, join, weighed
from lengthwise.errors import BadInput

if TYPE_CHECKING:
    from lengthwise.attention.triton.operands import Operands

LARGEST_HEAD = 256
# Heads larger than this need blocks with more shared memory than most GPUs have: Hopper and data-centre Blackwell do
USUAL_HEAD, SHARED_MEMORY = 128, 200 * 1024
TYPES = (torch.bfloat16, torch.float16, torch.float32)
# The gradient of a bias table goes through a band of rows x distances, a head at a time
WIDEST_BAND = 2**30
# What comes beside the output, as the forward kernel counts it, and how many numbers a row each takes
NO_ROWS, ONLY_LSE, ALL_ROWS = range(3)
FIELDS = (0, 1, 3)
# The scan's kernel counts the rows of all its temperatures, twice over, in 32 bits
MOST_ROWS = 2**30


def why_not_triton(equation: Equation, statistics: bool = False) -> str | None:
    """None when `triton` can compute the equation, else the reason in words."""
    value, bias = equation.value, equation.bias
    if equation.dropout >= 1:
        return "dropout leaves nothing"
    if equation.dropout > 0 and statistics:
        # With gradients it cannot either: a layer that is computed again for them must drop the same weights
        return "dropout is on and statistics are asked for"
    if value.shape[-1] != equation.key.shape[-1]:
        return f"values of {value.shape[-1]} numbers differ in size from keys of {equation.key.shape[-1]}"
    if value.dtype != equation.query.dtype:
        return f"queries are {_plain(equation.query.dtype)} and values {_plain(value.dtype)}"
    if equation.needs_grad:
        if statistics:
            return "a gradient is needed and it has none of the statistics"
        if bias is not None and bias.table.requires_grad:
            band = equation.visible.queries * bias.table.shape[-1]
            if band > WIDEST_BAND:
                return f"the gradient of a bias of {bias.table.shape[-1]:,} distances needs {band:,} numbers a head"
    return _why_no_logits(equation)


def require_triton(equation: Equation, statistics: bool) -> None:
    """Raise where the kernels are asked for by name and cannot compute the equation."""
    refuse("triton", why_not_triton(equation, statistics))


def refuse(implementation: str, reason: str | None) -> None:
    """Raise where there is a reason why an implementation cannot run."""
    if reason is not None:
        raise BadInput(f"attention implementation {implementation!r} cannot run here: {reason}; use 'blockwise' or 'auto'")


def why_no_scan(equation: Equation) -> str | None:
    """The same for `scan`, which reads no values and has no gradient."""
    rows = math.prod(equation.query.shape[:3])
    return f"{rows:,} rows are more than it can count" if rows >= MOST_ROWS else _why_no_logits(equation)


def _why_no_logits(equation: Equation) -> str | None:
    query, key = equation.query, equation.key
    if query.device.type == "cuda":
        if (reason := _why_not_on(query.device, query.shape[-1] > USUAL_HEAD)) is not None:
            return reason
    elif not interpreted():
        return f"the tensors are on {query.device.type} and the kernels need a CUDA device"
    if not installed():
        return "triton is not installed; pip install triton"
    if equation.more:
        return "its rows have several runs"
    if equation.scale < 0:
        return f"its scale {equation.scale:g} is negative"
    if query.shape[-1] > LARGEST_HEAD:
        return f"heads of {query.shape[-1]} numbers are larger than {LARGEST_HEAD}"
    if query.dtype not in TYPES or key.dtype != query.dtype:
        return f"queries are {_plain(query.dtype)} and keys {_plain(key.dtype)}; both must be bfloat16, float16 or float32"
    if key.shape[2] != equation.visible.keys:
        return f"the mask speaks of {equation.visible.keys} keys and {key.shape[2]} are given"
    return "there is nothing to compute" if 0 in query.shape or 0 in key.shape else None


def triton(equation: Equation, statistics: bool = False) -> tuple[Tensor, RowStatistics | None]:
    """Output [batch, heads, queries, size] and, when asked for, the statistics of every row. Check `why_not_triton` first."""
    learns = equation.needs_grad
    return _solved(equation, statistics, learns, *_operands_and_plan(equation, statistics, learns))


def again(equation: Equation, statistics: bool) -> tuple[Tensor, RowStatistics | None] | None:
    """What `triton` returns, where it has solved an equation of this kind before and nothing need be asked; else None."""
    learns = equation.needs_grad
    if not installed() or (statistics and (learns or equation.dropout > 0)):
        return None
    operands, known = _operands_and_plan(equation, statistics, learns)
    return None if known[0] is None else _solved(equation, statistics, learns, operands, known)


def _operands_and_plan(equation: Equation, statistics: bool, learns: bool) -> tuple[Any, Any]:
    """Operands but for a seed, and what is known of such equations; those that learn are not those that do not."""
    planned, operands = kernels(), operands_of(equation, equation.inverse_temperature)
    if learns:
        return operands, planned.known(operands, ONLY_LSE, equation.bias is not None and equation.bias.table.requires_grad)
    return operands, planned.known(operands, ALL_ROWS if statistics else NO_ROWS)


def _solved(
    equation: Equation, statistics: bool, learns: bool, operands: Operands, known: Any
) -> tuple[Tensor, RowStatistics | None]:
    planned = kernels()
    if equation.dropout > 0:
        from lengthwise.attention.triton.dropout import drawn

        operands = operands._replace(seed=drawn(equation.query.device))
    if learns:
        return _learning(equation, operands, known)[0], None
    output, rows = planned.by_heads(operands, ALL_ROWS if statistics else NO_ROWS, known)
    return output, None if rows is None else RowStatistics(*rows.unbind(0))


def over_runs(parts: Sequence[Equation]) -> Tensor | None:
    """The output of rows whose keys are several runs, each solved by itself; None where the kernels cannot solve one."""
    solved = [found for part in parts if (found := _output_and_lse(part)) is not None]
    if len(solved) < len(parts):
        return None
    return weighed(solved, reduce(torch.logaddexp, [lse for _, lse in solved]))


def _output_and_lse(equation: Equation) -> tuple[Tensor, Tensor] | None:
    """With their gradients where they need any; None where the kernels cannot."""
    if not installed() or equation.dropout > 0:
        return None
    learns = equation.needs_grad
    if learns:
        operands, known = _operands_and_plan(equation, statistics=False, learns=True)
    else:
        operands = operands_of(equation, equation.inverse_temperature)
        known = kernels().known(operands, ONLY_LSE)
    if known[0] is None and why_not_triton(equation) is not None:
        return None
    if learns:
        output, rows = _learning(equation, operands, known)
    else:
        output, rows = kernels().by_heads(operands, ONLY_LSE, known)
    return output, rows[0]


def scan(equation: Equation, inverse_temperatures: Tensor) -> RowStatistics:  # fields [temperatures, batch, heads, queries]
    """Statistics at several temperatures >= 0, values untouched; as `blocks.scan`. Check `why_no_scan` first."""
    from lengthwise.attention.triton.scan import scan as by_kernels

    operands, rows = operands_of(equation, None), math.prod(equation.query.shape[:3])
    found = []
    for g in torch.split(inverse_temperatures.float(), max(1, (MOST_ROWS - 1) // rows)):
        # A slice of more rows may lie as far apart as they do
        near = g if g.stride(0) * len(g) < MOST_ROWS else g.contiguous()
        found.append(RowStatistics(*by_kernels(operands, near).unbind(0)))
    return found[0] if len(found) == 1 else join(found, 0)


def interpreted() -> bool:
    """Whether Triton runs kernels on the CPU."""
    return installed() and os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


@lru_cache
def installed() -> bool:
    return find_spec("triton") is not None


@lru_cache
def _why_not_on(device: torch.device, large: bool) -> str | None:
    if torch.version.hip is not None:
        return "the kernels are written for NVIDIA GPUs"
    name, shared = torch.cuda.get_device_name(device), shared_memory(device)
    if torch.cuda.get_device_capability(device) < (8, 0):
        return f"{name} is older than Ampere"
    little = f"{name} has {shared:,} bytes of shared memory, too few for heads larger than {USUAL_HEAD}"
    return little if large and shared < SHARED_MEMORY else None


@lru_cache
def shared_memory(device: torch.device) -> int:
    """Bytes that a block of this device may have; all that a kernel wants where it is interpreted."""
    if device.type != "cuda":
        return 2**20
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


@lru_cache
def several_gpus() -> bool:
    """Whether a tensor may lie on another GPU than the current one."""
    return torch.cuda.device_count() > 1


@lru_cache
def multiprocessors(device: torch.device) -> int:
    """How many blocks this device computes at once at least."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 0


def products(dtype: torch.dtype) -> str | None:
    """How matrix products of a data type are computed: float32's in TF32 where PyTorch's own switch allows that.

    Else as six of bfloat16, or where Triton does not know these as three of TF32, which together keep what float32 keeps.
    """
    if dtype != torch.float32:
        return None
    switch = torch.backends.cuda.matmul
    # PyTorch before 2.9 has the other switch; later ones may refuse to read it
    allowed = switch.fp32_precision == "tf32" if hasattr(switch, "fp32_precision") else switch.allow_tf32
    return "tf32" if allowed else _several()


@lru_cache
def _several() -> str:
    from triton.backends.nvidia.compiler import CUDAOptions

    known = "bf16x6" in CUDAOptions.allowed_dot_input_precisions and not interpreted()
    return "bf16x6" if known else "tf32x3"


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@lru_cache
def kernels() -> Any:
    """The module that launches kernels, which imports Triton; importing it in every call would take microseconds."""
    from lengthwise.attention.triton import planned

    return planned


def _learning(equation: Equation, operands: Operands, known: Any) -> tuple[Tensor, Tensor]:
    """The output and its lse, [1, batch, heads, queries], with gradients."""
    table = None if equation.bias is None else equation.bias.table
    leaves = equation.query, equation.key, equation.value, table, equation.inverse_temperature
    found: tuple[Tensor, Tensor] = _Attention.apply(*leaves, operands, known)  # type: ignore[no-untyped-call]
    return found


def operands_of(equation: Equation, g: Tensor | None, seed: Tensor | None = None) -> Operands:
    visible, bias = equation.visible, equation.bias
    runs, hidden, offset = visible.for_kernels
    query, key, value = _in_rows(equation.query), _in_rows(equation.key), _in_rows(equation.value)
    table, radius = (None, 0) if bias is None else (bias.widened_once, max(bias.radius, 1))
    rest = in_float32(g), visible.facts, seed, equation.dropout
    operands: Operands = kernels().Operands(
        query, key, value, visible.keys, float(equation.scale), runs, offset, hidden, table, radius, *rest
    )
    return operands


def _in_rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def in_float32(g: Tensor | None) -> Tensor | None:
    """g as the kernels read it, whatever its type."""
    return g if g is None or (g.dtype == torch.float32 and not g.requires_grad) else g.detach().float()


class _Attention(torch.autograd.Function):
    """The output and its lse, with gradients for q, k, v, the bias table and g; the rest of the equation is in `operands`."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        table: Tensor | None,
        g: Tensor | None,
        operands: Any,
        known: Any,
    ) -> tuple[Tensor, Tensor]:
        planned = kernels()
        output: Tensor
        output, rows = planned.by_heads(operands, ONLY_LSE, known)
        # No gradient of an lse that nobody reads
        ctx.set_materialize_grads(False)
        # The seed among them: a checkpoint that draws another one must find all of them anew
        ctx.save_for_backward(query, key, value, table, g, output, rows, operands.seed)
        ctx.rest, ctx.kept, ctx.dropout, ctx.name = operands[3:10], operands.kept, operands.dropout, known[1]
        return output, rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        planned = kernels()
        query, key, value, table, g, output, rows, seed = ctx.saved_tensors
        grad = torch.zeros_like(output) if grad is None else grad
        given = (_in_rows(query), _in_rows(key), _in_rows(value), *ctx.rest, in_float32(g), ctx.kept, seed, ctx.dropout)
        needs = planned.Needs(*ctx.needs_input_grad[:5])
        by = planned.known_after(ctx.name, needs, grad)
        dq, dk, dv, d_table, dg = planned.backward(planned.Operands(*given), grad, output, rows, needs, by, d_lse)
        if d_table is not None:
            # A table of one entry was read as three equal ones
            d_table = (d_table if d_table.shape == table.shape else d_table.sum(-1, keepdim=True)).to(table.dtype)
        if dg is not None:
            dg = dg.sum_to_size(g.shape).to(g.dtype)
        return dq, dk, dv, d_table, dg, None, None
