"""What people run T5 on: how long it takes by every stock way, and accelerated, in one run.

    python benchmarks/workloads_gpu.py --seconds 600 --out benchmarks/results/workloads_gpu.json
    python benchmarks/workloads_gpu.py --only "base 32x512" --ways eager "eager compiled" lengthwise "lengthwise compiled"
    python benchmarks/workloads_gpu.py --tiny --device cpu      # tries the benchmark out

Ways take turns on random weights, the median turn counts; memory is the peak of a call above what was held before. `best_stock`
is the fastest way without lengthwise, compiled ones included, and `ratio` how many times as fast a way is. Records are written
after every workload; what there is no time for is left out and named.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import torch
from torch import Tensor

from benchmarks.gpu.results import _digits, _versions, device_name
from benchmarks.gpu.timing import Contestant, free, in_rounds, peak
from benchmarks.gpu.workloads import OURS, WAYS, WORKLOADS, Workload, built, runner, tiny
from lengthwise.common.files import write_whole

Record = dict[str, Any]
WARM_UPS = 3  # calls: reduce-overhead records its graph at the second


class Run:
    """The records of a run, and how long it may go on."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.device, self.records = given, torch.device(given.device), list[Record]()
        self.end = time.monotonic() + given.seconds
        self.when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if given.out is not None and given.out.exists():
            self.records = json.loads(given.out.read_text())

    def measure(self, workload: Workload) -> None:
        torch._dynamo.reset()
        model = built(workload, self.device, self.given.tiny)
        with ExitStack() as until:
            ready, notes, memory, outputs = self._warmed(workload, model, until)
            contestants = [Contestant(way, lambda _, run=run: run()) for way, run in ready.items()]
            timed = in_rounds(contestants, self.device, most=0.0 if self.given.tiny else 3.0) if contestants else {}
        best = min((timed[way].seconds for way in timed if way not in OURS), default=None)
        fresh = []
        for way in self.given.ways:
            record = {"workload": workload.name, "implementation": way, "seconds": None, "extra_gb": memory.get(way)}
            if way in timed:
                seconds = timed[way].seconds
                record |= {"seconds": seconds, "spread": timed[way].spread, "difference": _difference(outputs, way)}
                record |= {"best_stock": best, "ratio": None if best is None else best / seconds}
            else:
                record |= {"best_stock": best, "ratio": None, "note": notes[way]}
            fresh.append({**record, "device": device_name(self.device), "run": self.when, "versions": _versions()})
        self._keep(fresh)

    def _warmed(
        self, workload: Workload, model: Any, until: ExitStack
    ) -> tuple[dict[str, Callable[[], Tensor]], dict[str, str], Any, Any]:
        """The ways that run, why others do not, what each needs and, of forwards, what each says."""
        ready, notes, memory, outputs = {}, {}, {}, {}
        for way in self.given.ways:
            if time.monotonic() > self.end:
                notes[way] = "no time"
                continue
            begun = time.monotonic()
            try:
                run = runner(workload, model, way, until, "eager" if self.given.tiny else "inductor")
                for _ in range(WARM_UPS):
                    run()
                output, extra = peak(run, self.device)
                ready[way], outputs[way] = run, output.clone()
                memory[way] = None if "reduce-overhead" in way else extra
                del output
            except Exception as error:
                told = str(error).strip().splitlines()
                notes[way] = ": ".join([type(error).__name__, *told[:1]])
            print(f"  {way}: {notes.get(way, 'ready')} after {time.monotonic() - begun:.1f} s", flush=True)
            free(self.device)
        return ready, notes, memory, {} if workload.training else outputs

    def _keep(self, fresh: list[Record]) -> None:
        fresh = [{name: _digits(value) for name, value in record.items()} for record in fresh]
        mine = {(record["workload"], record["implementation"]) for record in fresh}
        self.records = [r for r in self.records if (r["workload"], r["implementation"]) not in mine] + fresh
        if self.given.out is not None:
            write_whole(self.given.out, json.dumps(self.records, indent=1) + "\n")
        for record in fresh:
            print(_line(record), flush=True)


def _difference(outputs: dict[str, Tensor], way: str) -> float | None:
    """How far a way's output is from that of the first, as a share of its norm; padding, which nobody reads, included."""
    first = next(iter(outputs.values()), None)
    if first is None or way not in outputs:
        return None
    return float((outputs[way].double() - first.double()).norm() / first.double().norm())


def _line(record: Record) -> str:
    head = f"{record['workload']:36} {record['implementation']:28}"
    if record["seconds"] is None:
        return f"{head} {record['note']}"
    memory = "" if record["extra_gb"] is None else f"{record['extra_gb']:8.2f} GB"
    ratio = "" if record["ratio"] is None else f"{record['ratio']:6.2f} x"
    return f"{head} {record['seconds'] * 1e3:10.3f} ms {ratio} {memory}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="workloads whose name has one of these in it")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=tuple(WAYS), metavar="WAY")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after this time")
    parser.add_argument("--out", type=Path, help="write the records here, in place of earlier ones of the same things")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="two layers, two rows of 24 tokens")
    given = parser.parse_args(words)
    torch._dynamo.config.recompile_limit = 64
    run = Run(given)
    for workload in WORKLOADS:
        if given.only and not any(part in workload.name for part in given.only):
            continue
        if time.monotonic() > run.end:
            print(f"{workload.name}: no time", flush=True)
            continue
        print(workload.name, flush=True)
        try:
            run.measure(tiny(workload) if given.tiny else workload)
        except torch.OutOfMemoryError:
            print(f"{workload.name}: out of memory", flush=True)
        free(run.device)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
