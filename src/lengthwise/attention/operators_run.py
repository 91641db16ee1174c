"""What the operators compute: the equation is made again of the tensors and numbers that a graph handed over, and solved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from lengthwise.attention.bias import DistanceBias
from lengthwise.attention.equation import Equation
from lengthwise.attention.triton import launch
from lengthwise.attention.triton.launch import ALL_ROWS, FIELDS
from lengthwise.attention.visible import Visible

if TYPE_CHECKING:
    from lengthwise.attention.statistics import RowStatistics
    from lengthwise.attention.triton.operands import Operands, Tile


class Given(NamedTuple):
    """An equation as operators take it."""

    query: Tensor
    key: Tensor
    value: Tensor
    table: Tensor | None  # widened
    g: Tensor | None
    runs: Tensor | None  # `Visible.packed`; None where every row sees every key
    hidden: Tensor | None  # `Visible.flagged`
    seed: Tensor | None
    bounds: Tensor | None
    offset: int
    radius: int
    scale: float
    dropout: float
    implementation: str

    @property
    def leaves(self) -> tuple[Tensor | None, ...]:
        """All that a gradient may reach."""
        return self[:5]

    @property
    def visible(self) -> Visible:
        queries, keys = self.query.shape[2], self.key.shape[2]
        if self.runs is None:
            return Visible.build(queries, keys, offset=self.offset, device=self.query.device)
        hidden = None if self.hidden is None else self.hidden[:, :keys].bool()
        visible = Visible(self.runs[:, 0], self.runs[:, 1], self.runs[0, 2], keys, hidden)
        visible.knowing(packed=self.runs, bounds=self.bounds)
        return visible if self.hidden is None else visible.knowing(flagged=self.hidden)

    @property
    def visible_to_kernels(self) -> Visible:
        """What kernels read of it and no more: nothing is computed, and no device is asked, which CUDA graphs forbid."""
        keys = self.key.shape[2]
        if self.runs is None:
            index = torch.empty(self.query.shape[2], dtype=torch.int64, device=self.query.device)
            return Visible(index[None], index[None], index, keys).knowing(full_from=self.offset, is_full=True)
        visible = Visible(self.runs[:, 0], self.runs[:, 1], self.runs[0, 2], keys, self.hidden)
        return visible.knowing(packed=self.runs, flagged=self.hidden, bounds=self.bounds, full_from=None, is_full=False)

    def equation(self, visible: Visible) -> Equation:
        bias = None if self.table is None else DistanceBias.of_widened(self.table, self.radius)
        return Equation(self.query, self.key, self.value, visible, self.scale, bias, self.g, self.dropout)

    def for_kernels(self, statistics: bool, *more: Any) -> tuple[Operands | None, Any]:
        """What kernels take, where they solve it, and what is known of it and `more` beforehand."""
        named = self.implementation == "triton"
        if not launch.installed() or not (named or (self.implementation == "auto" and self.query.is_cuda)):
            return None, None
        planned = launch.kernels()
        bare = planned.Operands(
            *self[:3], self.key.shape[2], self.scale, self.runs, self.offset, self.hidden, self.table,
            max(self.radius, 1) if self.table is not None else 0, launch.in_float32(self.g), {"bounds": self.bounds},
            self.seed, self.dropout,
        )  # fmt: skip
        known = planned.known(bare, *more)
        if known[0] is not None:
            return bare, known
        equation = self.equation(self.visible_to_kernels)
        if named:
            launch.require_triton(equation, statistics)
        elif launch.why_not_triton(equation, statistics) is not None:
            return None, None
        operands = launch.operands_of(equation, self.g, self.seed)
        return operands, planned.known(operands, *more)


def solve(*given: Any) -> tuple[Tensor, Tensor]:
    """Output, and as many numbers of every row as are wanted: [fields, batch, heads, queries]."""
    from lengthwise.attention import dispatch

    operands, want = Given(*given[:-1]), given[-1]
    statistics = want == ALL_ROWS
    ready, known = operands.for_kernels(statistics, want)
    if ready is not None:
        output, rows = launch.kernels().by_heads(ready, want, known)
    else:
        with _random_numbers(operands.seed):
            equation = operands.equation(operands.visible)
            found, statistic = dispatch.attention(equation, statistics=statistics, implementation=operands.implementation)
        output = _by_rows(found)
        rows = None if statistic is None else _stacked(statistic)
    # Only the kernels' own way back reads lse
    shape = (FIELDS[want], *operands.query.shape[:3])
    return output, operands.query.new_zeros(shape, dtype=torch.float32) if rows is None else rows


def gradients(*given: Any) -> tuple[Tensor, ...]:
    """Gradients of queries, keys, values, table and g; an empty tensor where none is needed."""
    operands, (grad, output, rows, grad_rows, needs) = Given(*given[:-5]), given[-5:]
    table, lse = operands.table, rows[1:2] if len(rows) == FIELDS[ALL_ROWS] else rows
    # The kernels' way back takes no gradient of the statistics
    ready, known = operands.for_kernels(False, tuple(needs), grad, output, lse) if grad_rows is None else (None, None)
    if ready is None:
        found = _gradients_by_blocks(operands, grad, grad_rows, needs)
    else:
        planned = launch.kernels()
        found = planned.backward(ready, grad, output, lse, planned.Needs(*needs), known)
        if table is not None and found[3] is not None:
            # What a widened table repeats beyond its ends has its gradient there
            more = (table.shape[-1] - found[3].shape[-1]) // 2
            found = (*found[:3], pad(found[3], (more, more)), found[4])
    return tuple(_fitted(*each, operands.query) for each in zip(operands.leaves, found, needs, strict=True))


def _fitted(leaf: Tensor | None, d: Tensor | None, needed: bool, query: Tensor) -> Tensor:
    """A gradient in the shape, type and order of memory that torch.compile was promised; empty where none is needed."""
    if d is None or leaf is None or not needed:
        return query.new_empty(0)
    if d.shape != leaf.shape or d.dtype != leaf.dtype:
        d = d.sum_to_size(leaf.shape).to(leaf.dtype)
    return _by_rows(d) if d.dim() == 4 else d.contiguous()


def _gradients_by_blocks(
    operands: Given, grad: Tensor, grad_rows: Tensor | None, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Solve once more, with a gradient."""
    from lengthwise.attention import dispatch

    leaves = [None if leaf is None else leaf.detach() for leaf in operands.leaves]
    wanted = [leaf.requires_grad_() for leaf, needed in zip(leaves, needs, strict=True) if leaf is not None and needed]
    with torch.enable_grad(), _random_numbers(operands.seed):
        learning = Given._make((*leaves, *operands[5:]))
        equation = learning.equation(learning.visible)
        output, rows = dispatch.attention(equation, statistics=grad_rows is not None, implementation=operands.implementation)
        ends, slopes = [output], [grad]
        if rows is not None and grad_rows is not None:
            ends, slopes = [output, _stacked(rows)], [grad, grad_rows]
    found = iter(torch.autograd.grad(ends, wanted, slopes, allow_unused=True))
    return tuple(next(found) if leaf is not None and needed else None for leaf, needed in zip(leaves, needs, strict=True))


def gradient_tile(runs: Tensor, size: int, dtype: torch.dtype) -> Tile | None:
    """The tile of the kernels for gradients; None where they do not run."""
    if not launch.installed() or not (runs.is_cuda or launch.interpreted()):
        return None
    from lengthwise.attention.triton.backward import tile_for

    return tile_for(size, dtype, launch.products(dtype))


def query_bounds(runs: Tensor, keys: int, radius: int, size: int, dtype: torch.dtype) -> Tensor:
    """[batch or 1, key blocks, 6]: which queries meet each block of keys, for the kernel that goes over keys."""
    tile = gradient_tile(runs, size, dtype)
    if tile is None:
        return runs.new_empty(0)
    from lengthwise.attention.triton.key_bounds import bounds_of

    return bounds_of(runs, keys, max(radius, 1) if radius else 0, tile)


def scan(
    query: Tensor, key: Tensor, table: Tensor | None, temperatures: Tensor, runs: Tensor | None, hidden: Tensor | None,
    offset: int, radius: int, scale: float,
) -> Tensor:  # fmt: skip
    """P_max, lse and entropy at several temperatures: [3, temperatures, batch, heads, queries]."""
    from lengthwise.attention import dispatch

    given = Given(query, key, key, table, None, runs, hidden, None, None, offset, radius, scale, 0.0, "auto")
    equation = given.equation(given.visible_to_kernels)
    if not query.is_cuda or launch.why_no_scan(equation) is not None:
        equation = given.equation(given.visible)
    rows = dispatch.scan(equation, temperatures)
    return _stacked(rows)


def _stacked(rows: RowStatistics) -> Tensor:
    return torch.stack([rows.p_max, rows.lse, rows.entropy]).float()


def _by_rows(tensor: Tensor) -> Tensor:
    """[batch, heads, rows, size] in memory of the order [batch, rows, heads, size], as fakes promise."""
    by_rows = tensor.transpose(1, 2)
    return tensor if by_rows.is_contiguous() else by_rows.contiguous().transpose(1, 2)


@contextmanager
def _random_numbers(seed: Tensor | None) -> Iterator[None]:
    """Random numbers that follow from a seed, if there is one: a gradient drops the weights that its forward dropped."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[seed.device] if seed.is_cuda else []):
        first, second = seed.tolist()
        torch.manual_seed((first << 32) ^ (second & 0xFFFFFFFF))
        yield
