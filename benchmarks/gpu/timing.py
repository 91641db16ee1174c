"""Time calls that take turns, and measure the memory that they need.

A turn is a loop of calls without waiting between them, as in a program: the host's work counts where the device waits for it.
Contestants take turns, so that a clock that changes with the load changes for all of them; the median turn counts.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TypeVar

import torch

TURN = 5e-3  # seconds that a turn lasts at least, if a hundred calls can fill it
MOST_CALLS, LEAST_ROUNDS, MOST_ROUNDS = 100, 3, 15
PATIENCE = 1.0  # seconds; a call that takes longer is made once

Result = TypeVar("Result")


@dataclass(frozen=True)
class Contestant:
    name: str
    call: Callable[[int], object]  # told which call it is, to take other inputs than the last one did
    around: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True)
class Timed:
    seconds: float  # a call, in the median turn
    spread: float  # from the 20th to the 80th percentile of turns, as a share of the median
    rounds: int


def in_rounds(contestants: Sequence[Contestant], device: torch.device, most: float = 1.0) -> dict[str, Timed]:
    """At least three rounds, more while they take less than `most` seconds; one where all calls outlast our patience."""
    once = {one.name: _once(one, device) for one in contestants}
    if min(once.values()) > PATIENCE:
        return {name: Timed(seconds, 0.0, 1) for name, seconds in once.items()}
    calls = {name: max(1, min(MOST_CALLS, math.ceil(TURN / seconds))) for name, seconds in once.items()}
    a_round = sum(calls[name] * seconds for name, seconds in once.items())
    rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, int(most / a_round)))
    turns = [{one.name: _turn(one, calls[one.name], device) for one in contestants} for _ in range(rounds)]
    return {one.name: _summary([turn[one.name] for turn in turns]) for one in contestants}


def repeated(work: Callable[[], object], device: torch.device, patience: float = PATIENCE, most: float = 1.0) -> Timed:
    """A first call, and if that took less than `patience` seconds it was the warm-up of others, for `most` seconds."""
    first = elapsed(work, device)
    if first > patience:
        return Timed(first, 0.0, 1)
    times: list[float] = []
    while not times or (sum(times) < most and len(times) < MOST_ROUNDS):
        times.append(elapsed(work, device))
    return _summary(times)


def replayed(one: Contestant, calls: int, device: torch.device) -> Timed:
    """The same calls recorded as one CUDA graph, which leaves the host out."""
    with one.around():
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for i in range(calls):
                one.call(i)
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = [one.call(i) for i in range(calls)]
        found = repeated(graph.replay, device, most=0.1)
        del kept
    return Timed(found.seconds / calls, found.spread, found.rounds)


def elapsed(work: Callable[[], object], device: torch.device) -> float:
    """From before the first of it to the end of the last, on the device's own clock where it has one."""
    if device.type != "cuda":
        before = time.perf_counter()
        work()
        return time.perf_counter() - before
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end) / 1e3


def peak(work: Callable[[], Result], device: torch.device) -> tuple[Result, float | None]:
    """What `work` returns, and the gigabytes it held at most above what was held before; None where nobody counts."""
    if device.type != "cuda":
        return work(), None
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = work()
    torch.cuda.synchronize(device)
    return result, (torch.cuda.max_memory_allocated(device) - before) / 1e9


def free(device: torch.device) -> None:
    """Give back what no tensor holds any more."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def _once(one: Contestant, device: torch.device) -> float:
    """The first call pays for what is made once, which matters little where it is long."""
    first = _turn(one, 1, device)
    return first if first > PATIENCE else min(first, _turn(one, 1, device))


def _turn(one: Contestant, calls: int, device: torch.device) -> float:
    def loop() -> None:
        for i in range(calls):
            one.call(i)

    with one.around():
        return elapsed(loop, device) / calls


def _summary(times: list[float]) -> Timed:
    middle = median(times)
    cuts = quantiles(times, n=5, method="inclusive") if len(times) > 1 else [middle] * 4
    return Timed(middle, (cuts[3] - cuts[0]) / middle, len(times))
