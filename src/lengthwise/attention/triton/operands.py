"""What kernels are given, and how they are launched: an equation's tensors and numbers, the size of a tile, and a launch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from lengthwise.attention.triton.dropout import limit_of
from lengthwise.attention.triton.tiles import INTERPRETED


@dataclass(frozen=True)
class Tile:
    """Queries and keys of a block, warps, tiles in flight, and the most registers a thread may have."""

    queries: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None
    frozen: bool = True
    precision: str | None = None

    @property
    def options(self) -> dict[str, int]:
        if INTERPRETED:
            return {}
        limit = {} if self.registers is None else {"maxnreg": self.registers}
        # Asked for, as Triton means to make the opposite its default
        return {"num_warps": self.warps, "num_stages": self.stages, "enable_fp_fusion": True, **limit}


class Operands(NamedTuple):
    """One equation as the kernels take it."""

    query: Tensor  # [batch, heads, queries, size]; these three end in a stride of 1
    key: Tensor  # [batch, kv_heads, keys, size]
    value: Tensor
    keys: int
    scale: float
    runs: Tensor | None  # [batch or 1, 3, queries], int32: see `Visible.packed`; None where every row sees every key
    offset: int  # there, where the first query stands
    hidden: Tensor | None  # [batch or 1, keys + 1]: see `Visible.flagged`
    table: Tensor | None  # [heads, 2 * (radius + MARGIN) + 1], float32
    radius: int
    g: Tensor | None  # [batch or 1, heads or 1, queries or 1], float32
    kept: dict[Any, Any]  # what was derived from the runs: once a mask, not once a layer
    seed: Tensor | None = None  # of dropout, [2], int32
    dropout: float = 0.0

    @property
    def group(self) -> int:
        return self.query.shape[1] // self.key.shape[1]

    def slots(self, none: Any) -> list[Any]:
        """Table, g, runs, hidden and seed; `none` where one is missing, which is never read."""
        given = (self.table, self.g, self.runs, self.hidden, self.seed)
        return [none if tensor is None else tensor for tensor in given]

    @property
    def drops(self) -> bool:
        return self.seed is not None

    @property
    def dropping(self) -> tuple[int, float]:
        """Which hashes are dropped, and what the others are multiplied by."""
        return (limit_of(self.dropout), 1.0 / (1.0 - self.dropout)) if self.drops else (0, 1.0)

    @property
    def slot_strides(self) -> tuple[int, ...]:
        """Strides of g (batch, head, row), of runs and of hidden (batch): 0 where one serves all."""
        g, runs, hidden = self.g, self.runs, self.hidden
        of_g = [0, 0, 0] if g is None else [s if n > 1 else 0 for n, s in zip(g.shape, g.stride(), strict=True)]
        of_runs = 0 if runs is None or runs.shape[0] == 1 else runs.stride(0)
        return (*of_g, of_runs, 0 if hidden is None or hidden.shape[0] == 1 else hidden.stride(0))

    @property
    def given(self) -> tuple[bool, bool, int, bool]:
        """FULL, BIAS, TEMPERED (0 not at all, 1 one number a head, 2 one a row), HIDES."""
        g = self.g
        tempered = 0 if g is None else 2 if g.shape[2] > 1 and g.stride(2) else 1
        return self.runs is None, self.table is not None, tempered, self.hidden is not None


def padded(size: int) -> int:
    """The head size a tile has: a power of two, and no less than a matrix product takes."""
    return max(16, 1 << (size - 1).bit_length())


# Lengths, counts and small tensors choose no variant: a model would be compiled anew for them
ANY_NUMBER = ["radius", "heads", "queries", "offset", "g_t", "g_b", "g_h", "g_m", "s_b", "h_b", "field", "first", "limit"]
ANY_ADDRESS = ["ROWS", "TABLE", "G", "RUNS", "HIDDEN", "SEED", "WORDS", "BOUNDS", "DG", "BANDS"]
one_variant: Any = partial(triton.jit, do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANY_ADDRESS)

# Compiled kernels by everything that chose them: asking Triton again costs more than the launch
_ready: dict[tuple[Any, ...], Any] = {}
_MOST = 4096


def launch(kernel: Any, programs: int, tensors: tuple[Tensor, ...], numbers: tuple[Any, ...], tile: Tile) -> Any:
    """kernel[programs](*tensors, *numbers), with Triton's own choice of a variant remembered; what is launched by [grid]."""
    device = tensors[0].device
    if not INTERPRETED and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return launch(kernel, programs, tensors, numbers, tile)
    ready = _launch(kernel, programs, tensors, numbers, tile)
    if (launches := getattr(_recorded, "launches", None)) is not None:
        launches.append((kernel, ready[programs, 1, 1], numbers))
    return ready


@contextmanager
def recorded() -> Iterator[list[tuple[Any, Any, tuple[Any, ...]]]]:
    """What is launched in this thread meanwhile: kernels, what launches them again, and numbers."""
    _recorded.launches = []
    try:
        yield _recorded.launches
    finally:
        _recorded.launches = None


_recorded = threading.local()


def _launch(kernel: Any, programs: int, tensors: tuple[Tensor, ...], numbers: tuple[Any, ...], tile: Tile) -> Any:
    if INTERPRETED:
        kernel[(programs,)](*tensors, *numbers)
        return kernel
    device = tensors[0].device
    # The numbers decide a variant, and with them the types of all tensors but the first; so do 16-byte boundaries
    aligned = tuple([tensor.data_ptr() % 16 == 0 for tensor in tensors])
    key = (kernel, device.index, tensors[0].dtype, aligned, numbers, tile)
    ready = _ready.get(key)
    if ready is not None:
        ready[(programs, 1, 1)](*tensors, *numbers)
        return ready
    if len(_ready) >= _MOST:
        _ready.clear()
    _ready[key] = kernel[(programs,)](*tensors, *numbers, **tile.options)
    return _ready[key]
