"""What is measured, in which order: what the kernel was promised to show first, then whatever tells most for its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from benchmarks.gpu.attention import FAST, SLOW, attention, ceilings, graph
from benchmarks.gpu.calibration import SCOPES, calibration
from benchmarks.gpu.encoder import IMPLEMENTATIONS, encoder, longest, rows_of, training
from benchmarks.gpu.implementations import Setting
from benchmarks.gpu.results import Results
from benchmarks.gpu.sizes import (
    CALIBRATION_LENGTHS,
    DROPOUT_LENGTHS,
    ENCODER_LENGTHS,
    LENGTHS,
    LONGEST,
    SHAPES,
    TRAINING_LENGTHS,
)

FAST_BACKWARD = tuple(name for name in FAST if "statistics" not in name)
PROMISED = {"attention": (16_384, 32_768, 2048), "backward": (8192,), "encoder": (15_000,)}
SHAPE = "flan-t5-xl"  # of what was promised
LARGEST = "flan-t5-xxl"
GRAPHS = (1024, 2048)
DIRECT = (1024,)  # where an accelerated T5's shorter way to the kernel tells

Value = TypeVar("Value")


@dataclass(frozen=True)
class Item:
    rank: int  # 0 is measured first
    name: str
    seconds: float  # about what it takes on an H200, everything included
    run: Callable[[], None]
    done: Callable[[], bool] = lambda: False  # in an earlier run


def plan(
    whats: Sequence[str], lengths: Sequence[int] | None, shapes: Sequence[str], setting: Setting, results: Results
) -> list[Item]:
    """Every item, the most important first."""
    small = {} if setting.device.type == "cuda" else {"side": 256, "copied": 2**20}
    items = [Item(0, "ceilings", 1.5, partial(ceilings, setting, results, **small))]
    for what in whats:
        if what in ("attention", "backward"):
            items += _attention(what, lengths or LENGTHS, setting, results)
        elif what == "dropout":
            items += _dropout(lengths or DROPOUT_LENGTHS, setting, results)
        elif what == "encoder":
            items += _encoder(lengths or ENCODER_LENGTHS, shapes, setting, results)
        elif what == "training":
            items += _training(lengths or TRAINING_LENGTHS, shapes, setting, results)
        elif what == "calibration":
            items += _calibration(lengths or CALIBRATION_LENGTHS, shapes, setting, results)
        else:
            items += _longest(shapes, setting, results)
    return sorted(items, key=lambda item: item.rank)


def _attention(what: str, lengths: Sequence[int], setting: Setting, results: Results) -> Iterator[Item]:
    backward = what == "backward"
    fast = FAST_BACKWARD if backward else FAST
    for length in _first(lengths, PROMISED[what]):
        size = (length / 2**16) ** 2 * (3.5 if backward else 1.0)
        direct = ("accelerate",) if not backward and length in DIRECT and setting.device.type == "cuda" else ()
        groups = [((*fast, *direct), _fast_rank(what, length), 1 + 3 * size)]
        groups += [((name,), _slow_rank(what, length, name), 1 + (6 if name == "flex" else 0) + 8 * size) for name in SLOW]
        for names, rank, seconds in groups:
            yield _point(rank, what, length, names, seconds, setting, results)
        if not backward and setting.device.type == "cuda" and length in GRAPHS:
            for name in FAST:
                yield Item(5, f"graph {length} {name}", 1.0, partial(graph, length, name, setting, results))


def _dropout(lengths: Sequence[int], setting: Setting, results: Results) -> Iterator[Item]:
    """FlexAttention has none."""
    for length in lengths:
        seconds = 2 + 20 * (length / 2**15) ** 2
        for names in (FAST_BACKWARD, *((name,) for name in SLOW if name != "flex")):
            yield _point(5, "dropout", length, names, seconds, setting, results)


def _point(rank: int, what: str, length: int, names: Sequence[str], seconds: float, setting: Setting, results: Results) -> Item:
    return Item(
        rank,
        f"{what} {length} {' '.join(names)}",
        seconds,
        partial(attention, what, length, names, setting, results),
        lambda: all(results.has(what, name, setting.shape, length) for name in names),
    )


def _fast_rank(what: str, length: int) -> int:
    if length in PROMISED[what]:
        return 1
    return 2 if what == "attention" else 4 if length <= 16_384 else 6


def _slow_rank(what: str, length: int, name: str) -> int:
    if what == "backward":
        return 5 if length in PROMISED[what] else 7
    if length == 16_384:
        return 3
    # Each length is compiled for itself
    return 4 if name != "flex" or length == 2048 else 6


def _encoder(lengths: Sequence[int], shapes: Sequence[str], setting: Setting, results: Results) -> Iterator[Item]:
    for shape in _first(shapes, (SHAPE,)):
        for length in _first(lengths, PROMISED["encoder"]):
            for implementation in IMPLEMENTATIONS:
                if (rank := _encoder_rank(shape, length, implementation)) is None:
                    continue
                yield Item(
                    rank,
                    f"encoder {shape} {length} {implementation}",
                    _encoder_seconds(shape, length, implementation),
                    partial(encoder, shape, length, implementation, setting, results),
                    partial(results.has, "encoder", implementation, shape, length),
                )


def _encoder_rank(shape: str, length: int, implementation: str) -> int | None:
    promised = length in PROMISED["encoder"]
    if implementation == "lengthwise":
        if shape == SHAPE:
            return 1 if promised else 2
        return 4 if length <= 2**16 else 7
    if length > 2**16:
        return None  # a matrix of biases alone is larger than any memory
    return (3 if promised else 4) if shape == SHAPE else 6


def _encoder_seconds(shape: str, length: int, implementation: str) -> float:
    own = SHAPES[shape]
    if implementation == "lengthwise":
        return 1.5 + own.operations(length) / 4e14
    matrices = own.layers * own.heads * length**2
    return 1.5 + matrices * (2.2e-11 if implementation == "transformers_eager" else 3.5e-11)


def _training(lengths: Sequence[int], shapes: Sequence[str], setting: Setting, results: Results) -> Iterator[Item]:
    """Training steps of the shapes that a GPU can hold with their gradients: XXL is left out."""
    for shape in (shape for shape in shapes if shape != LARGEST):
        for length in lengths:
            for implementation in IMPLEMENTATIONS:
                yield Item(
                    5,
                    f"training {shape} {length} {implementation}",
                    1.0 + 3.5 * rows_of(length) * _encoder_seconds(shape, length, implementation),
                    partial(training, shape, length, implementation, setting, results),
                    partial(results.has, "training", implementation, shape, length),
                )


def _calibration(lengths: Sequence[int], shapes: Sequence[str], setting: Setting, results: Results) -> Iterator[Item]:
    for shape in _promised(shapes):
        for length in lengths:
            for scope in SCOPES:
                yield Item(
                    1,
                    f"calibration {shape} {length} scope {scope}",
                    6.0,
                    partial(calibration, shape, length, scope, setting, results),
                    partial(results.has, "calibration", "lengthwise", shape, length, scope=scope),
                )


def _longest(shapes: Sequence[str], setting: Setting, results: Results) -> Iterator[Item]:
    for shape in _first(shapes, (SHAPE,)):
        for implementation in IMPLEMENTATIONS:
            ours = implementation == "lengthwise"
            yield Item(
                (7 if ours else 5) if shape == SHAPE else 8,
                f"longest {shape} {implementation}",
                # A layer at the longest length, and at all of its halves
                1.5 * SHAPES[shape].operations(LONGEST) / SHAPES[shape].layers / 4.5e14 if ours else 6.0,
                partial(longest, shape, implementation, 2**17 if ours else 2**13, LONGEST, setting, results),
                partial(results.has, "longest", implementation, shape),
            )


def _promised(shapes: Sequence[str]) -> Sequence[str]:
    """One shape is enough, where it is there."""
    return [SHAPE] if SHAPE in shapes else shapes


def _first(values: Sequence[Value], first: Sequence[Value]) -> list[Value]:
    """`values`, those of `first` in front and in its order."""
    return [*(value for value in first if value in values), *(value for value in values if value not in first)]
