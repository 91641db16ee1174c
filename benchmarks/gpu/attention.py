"""Attention alone, forward and with its backward, and the two ceilings of the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch

from benchmarks.gpu.implementations import Attend, Inputs, Setting, errors, made
from benchmarks.gpu.results import Results, find
from benchmarks.gpu.timing import Contestant, free, in_rounds, peak, replayed

FAST = ("lengthwise", "lengthwise+statistics", "torch_flash", "cudnn")
SLOW = ("sdpa_dense_bias", "eager", "flex")
# Matrices of length x length that are held at once, in the inputs' data type: forward, forward and backward
MATRICES = {"sdpa_dense_bias": (1, 2), "eager": (5, 8)}
TOO_LONG = 20.0  # seconds that a call may take
DROPOUT = 0.1  # T5's


def ceilings(setting: Setting, results: Results, side: int = 8192, copied: int = 2**31) -> None:
    """Measure the ceilings of the machine: a product of random matrices, and a copy that counts bytes read and written."""
    device = setting.device
    a, b = (torch.randn(side, side, device=device).to(setting.dtype) for _ in range(2))
    source = torch.empty(copied, dtype=torch.int8, device=device).random_()
    target = torch.empty_like(source)
    timed = in_rounds(
        [Contestant("matmul", lambda _: a @ b), Contestant("copy", lambda _: target.copy_(source))], device, most=0.5
    )
    name = str(setting.dtype).removeprefix("torch.")
    product = timed["matmul"]
    tflops = 2 * side**3 / product.seconds / 1e12
    results.add("ceiling", "matmul", f"{side}^3, {name}", side, seconds=product.seconds, tflops=tflops, spread=product.spread)
    copy = timed["copy"]
    tb_s = 2 * copied / copy.seconds / 1e12
    results.add("ceiling", "copy", f"{copied / 1e9:.1f} GB", copied, seconds=copy.seconds, tb_s=tb_s, spread=copy.spread)


def attention(what: str, length: int, names: Sequence[str], setting: Setting, results: Results) -> None:
    """Measure one length: the implementations of `names` that can run there, in turns.

    `what` is attention, or backward, which is both directions, or dropout, which is both with weights dropped.
    """
    backward = what != "attention"
    setting = replace(setting, dropout=DROPOUT if what == "dropout" else 0.0)
    given = Inputs.random(length, setting, needs_grad=backward)
    with nullcontext() if backward else torch.inference_mode():
        ready, extra = _ready(what, length, names, given, setting, results)
        timed = in_rounds([part for parts in ready.values() for part in parts], setting.device) if ready else {}
    operations = 4 * length**2 * setting.size * setting.heads
    for name in ready:
        own, more = timed[name], {}
        if backward:
            more = {"timed": "forward+backward", "backward_seconds": timed[_alone(name)].seconds}
        if name == "lengthwise+statistics":
            more = {"errors": errors(given, setting)}
        results.add(
            what,
            name,
            setting.shape,
            length,
            seconds=own.seconds,
            # A backward is five matrix products, a forward two
            tflops=operations * (3.5 if backward else 1.0) / own.seconds / 1e12,
            extra_gb=extra[name],
            spread=own.spread,
            rounds=own.rounds,
            **more,
        )
    del given, ready
    free(setting.device)


def graph(length: int, name: str, setting: Setting, results: Results) -> None:
    """Measure a short call again as a CUDA graph, without the host's part, and add it to the record."""
    record = find(results.records, what="attention", implementation=name, shape=setting.shape, length=length)
    if record is None or record["seconds"] is None:
        return
    given = Inputs.random(length, setting)
    with torch.inference_mode():
        attend = made(name, given, setting)
        found = replayed(Contestant(name, attend.forward, attend.around), 4 * len(given.sets), setting.device)
    results.mark(record, graph_seconds=found.seconds)


def _ready(
    what: str, length: int, names: Sequence[str], given: Inputs, setting: Setting, results: Results
) -> tuple[dict[str, list[Contestant]], dict[str, float | None]]:
    """Implementations that ran once, the calls to time for each, and the gigabytes each needed."""
    ready: dict[str, list[Contestant]] = {}
    extra: dict[str, float | None] = {}
    for name in names:
        note = _too_large(what, name, length, setting) or _too_long(what, name, length, setting, results)
        if note is not None:
            results.add(what, name, setting.shape, length, note=note)
            continue
        with results.attempt(what, name, setting.shape, length):
            ready[name], extra[name] = _first(what, name, given, setting)
        if name not in ready:
            # A device that no longer answers fails here again, and ends the run
            free(setting.device)
    return ready, extra


def _first(what: str, name: str, given: Inputs, setting: Setting) -> tuple[list[Contestant], float | None]:
    """What is timed, after a first call that tells the memory: a forward, or both directions and the backward alone."""

    def once() -> tuple[Attend, Contestant]:
        attend = made(name, given, setting)
        one = Contestant(name, attend.forward if what == "attention" else _both(attend), attend.around)
        with one.around():
            one.call(0)
        return attend, one

    (attend, one), extra = peak(once, setting.device)
    return [one] if what == "attention" else [one, _backward(name, attend, len(given.sets))], extra


def _both(attend: Attend) -> Callable[[int], object]:
    def both(call: int) -> object:
        output = attend.forward(call)
        # Random as the inputs are; made of them, to cost nothing
        return torch.autograd.grad(output, attend.leaves(call), attend.leaves(call)[2].detach())

    return both


def _backward(name: str, attend: Attend, sets: int) -> Contestant:
    """The backward of forwards that were made before."""
    with attend.around():
        outputs = [attend.forward(call) for call in range(sets)]

    def alone(call: int) -> object:
        gradient = attend.leaves(call)[2].detach()
        return torch.autograd.grad(outputs[call % sets], attend.leaves(call), gradient, retain_graph=True)

    return Contestant(_alone(name), alone, attend.around)


def _alone(name: str) -> str:
    return f"{name}, backward alone"


def _too_large(what: str, name: str, length: int, setting: Setting) -> str | None:
    if setting.device.type != "cuda" or name not in MATRICES:
        return None
    needed = MATRICES[name][what != "attention"] * setting.heads * length**2 * setting.dtype.itemsize
    there = torch.cuda.get_device_properties(setting.device).total_memory
    return None if needed < there else f"out of memory: needs {needed / 1e9:.0f} GB"


def _too_long(what: str, name: str, length: int, setting: Setting, results: Results) -> str | None:
    """Expected seconds, from the time at the longest measured length below and the squares of both lengths."""
    of = {"what": what, "implementation": name, "shape": setting.shape}
    timed = [r for r in results.records if of.items() <= r.items() and r["seconds"] is not None and r["length"] < length]
    if not timed:
        return None
    last = max(timed, key=lambda r: r["length"])
    expected = last["seconds"] * (length / last["length"]) ** 2
    return None if expected < TOO_LONG else f"left out: a call would take {expected:.0f} s, by its time at {last['length']:,}"
