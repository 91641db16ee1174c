"""The command: reads options, works through the plan while there is time, and prints what was measured.

What is heavy to import is imported late, so that the processes that compile ahead begin at once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gpu import compile_ahead
from benchmarks.gpu.sizes import LENGTHS, SHAPES

if TYPE_CHECKING:
    from benchmarks.gpu.plan import Item

WHATS = ("attention", "backward", "dropout", "encoder", "training", "calibration", "longest")
LAST = 2.0  # seconds kept for the words at the end
COMPILING = 50.0  # seconds to wait at most for what is compiled ahead, and of the time at most this share
SHARE = 0.3


def main(words: Sequence[str], start: float, about: str | None) -> int:
    given = _options(words, about)
    helpers = [] if given.page or given.device == "cpu" else _compile_ahead(given)
    try:
        from experiments._lib.command import exit_status

        return exit_status(lambda: _page(given.out) if given.page else _measure(given, start, helpers))
    finally:
        for helper in helpers:
            helper.end()


def _options(words: Sequence[str], about: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=WHATS, default=WHATS)
    parser.add_argument("--length", type=int, nargs="+", help="tokens, for all that is measured")
    parser.add_argument("--shape", nargs="+", choices=tuple(SHAPES), default=tuple(SHAPES), help="encoders")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop in time")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/attention_gpu.json"))
    parser.add_argument("--resume", action="store_true", help="keep the records at --out and measure what is missing")
    parser.add_argument("--page", action="store_true", help="measure nothing, print the tables of the records at --out")
    parser.add_argument("--device", default="cuda", help="cpu tries the benchmark out, with a small --length")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--size", type=int, default=64, help="of a head")
    given = parser.parse_args(words)
    if not given.page and given.device != "cpu":
        import torch

        if not torch.cuda.is_available():
            parser.error("this machine has no CUDA device; pass --device cpu and a small --length to try the benchmark out")
    return given


def _compile_ahead(given: argparse.Namespace) -> list[compile_ahead.Begun]:
    return compile_ahead.start(compile_ahead.tasks_for(given.what, given.length or LENGTHS))


def _page(out: Path) -> None:
    from benchmarks.gpu.page import page
    from benchmarks.gpu.results import read

    print(page(read(out)))


def _measure(given: argparse.Namespace, start: float, helpers: list[compile_ahead.Begun]) -> None:
    import torch

    from benchmarks.gpu.implementations import Setting
    from benchmarks.gpu.plan import plan
    from benchmarks.gpu.results import Results, device_name, read
    from benchmarks.gpu.targets import promises

    device, on_cpu = torch.device(given.device), given.device == "cpu"
    implementation, dtype = ("auto", torch.float32) if on_cpu else ("triton", torch.bfloat16)
    setting = Setting(device, implementation, given.heads, given.size, dtype)
    results = Results(given.out, device_name(device), read(given.out) if given.resume and given.out.exists() else [])
    _work(plan(given.what, given.length, given.shape, setting, results), given, start, helpers)
    for promise in promises(results.records):
        print(promise)


def _work(items: Sequence[Item], given: argparse.Namespace, start: float, helpers: list[compile_ahead.Begun]) -> None:
    """Measure one item after the other while there is time; stop the one that would outlast it."""
    from experiments._lib.minutes import TimeIsUp, at_most

    def left() -> float:
        return max(0.0, start + given.seconds - LAST - time.monotonic())

    try:
        with at_most(left() / 60):
            for failure in compile_ahead.wait(helpers, time.monotonic() + min(COMPILING, SHARE * left())):
                print(f"not compiled ahead: {failure}", file=sys.stderr)
            for item in items:
                if given.resume and item.done():
                    continue
                if left() < item.seconds:
                    print(f"left out for want of time: {item.name}", flush=True)
                    continue
                _run(item, start)
    except TimeIsUp:
        print("the time is up", flush=True)


def _run(item: Item, start: float) -> None:
    """Measure an item; where it breaks, say so and go on with the others."""
    before = time.monotonic()
    try:
        item.run()
    except Exception as error:
        print(f"failed: {item.name}: {type(error).__name__}: {error}", flush=True)
    now = time.monotonic()
    print(f"{now - start:6.1f} s  {item.name} took {now - before:.1f} s", flush=True)
