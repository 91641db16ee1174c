"""Compile kernels ahead, in processes beside the one that will measure, into the caches that all of them read.

    python -m benchmarks.gpu.compile_ahead WHAT LENGTH IMPLEMENTATION

A kernel takes seconds to compile and a machine has many cores. Each task measures something once and forgets it, at a small
length where the kernels do not depend on it: those of lengthwise know of a length only whether 16 divides it, those of
FlexAttention are made for one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

# Lengths that 16 divides and does not; of 8,200 tokens, as of 15,000, a calibration makes 16 short texts
EVEN, ODD = 4096, 8200
ROOT = Path(__file__).resolve().parents[2]
SHAPE = "flan-t5-xl"


@dataclass(frozen=True)
class Task:
    what: str
    length: int
    implementation: str  # of a calibration its scope

    def __str__(self) -> str:
        return f"{self.what} {self.length} {self.implementation}"


@dataclass(frozen=True)
class Begun:
    """A task at work in another process."""

    task: Task
    process: subprocess.Popen[str]

    def end(self) -> None:
        """Stop the process if it has not finished."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def tasks_for(whats: Sequence[str], lengths: Sequence[int]) -> list[Task]:
    """What has to be compiled for these measurements; `lengths` are those FlexAttention is compiled for."""
    ours, both = "lengthwise", "lengthwise+statistics"
    of = {
        "attention": [Task("attention", EVEN, ours), Task("attention", EVEN, both)],
        "backward": [Task("backward", EVEN, ours), Task("backward", 8192, "flex")],
        "dropout": [Task("dropout", EVEN, ours)],
        "encoder": [Task("encoder", EVEN, ours), Task("encoder", ODD, ours)],
        "training": [Task("training", EVEN, ours), Task("training", ODD, ours)],
        "calibration": [Task("calibration", ODD, "model"), Task("calibration", ODD, "layer")],
    }
    found = [task for what in whats for task in of.get(what, [])]
    return found + [Task("attention", length, "flex") for length in lengths if "attention" in whats]


def start(tasks: Sequence[Task]) -> list[Begun]:
    def begun(task: Task) -> Begun:
        command = [sys.executable, "-m", "benchmarks.gpu.compile_ahead", *str(task).split()]
        # A process a task is parallel enough
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return Begun(task, subprocess.Popen(command, cwd=ROOT, env=environment, **quiet))

    return [begun(task) for task in tasks]


def wait(begun: Sequence[Begun], until: float) -> list[str]:
    """Wait for all processes, or until this time on the monotonic clock; return what was not compiled, in words."""
    failed = []
    for one in begun:
        try:
            _, said = one.process.communicate(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.end()
            failed.append(f"{one.task}: took too long")
            continue
        if one.process.returncode:
            failed.append(f"{one.task}: {[one.process.returncode, *said.strip().splitlines()][-1]}")
    return failed


def run(task: Task) -> None:
    import torch

    from benchmarks.gpu.attention import attention
    from benchmarks.gpu.calibration import calibration
    from benchmarks.gpu.encoder import encoder, training
    from benchmarks.gpu.implementations import Setting
    from benchmarks.gpu.results import Results
    from benchmarks.gpu.sizes import SHAPES

    setting, results = Setting(torch.device("cuda")), Results(None, "")
    # One layer has the kernels of all
    SHAPES[SHAPE] = replace(SHAPES[SHAPE], layers=1)
    if task.what == "encoder":
        encoder(SHAPE, task.length, task.implementation, setting, results)
    elif task.what == "training":
        training(SHAPE, task.length, task.implementation, setting, results)
    elif task.what == "calibration":
        calibration(SHAPE, task.length, task.implementation, setting, results)
    else:
        attention(task.what, task.length, [task.implementation], setting, results)
    notes = [record["note"] for record in results.records if "note" in record]
    if notes:
        raise SystemExit(notes[-1])


if __name__ == "__main__":
    run(Task(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
