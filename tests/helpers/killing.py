"""A process that evaluates in forked children and kills them; run by tests/test_evaluate.py, because a fork needs a process
whose arithmetic has started no threads, and each start of torch costs seconds.

    python -m tests.helpers.killing MODEL FOLDER

Leaves run directories under FOLDER: `whole` undisturbed, `killed` after ten kills, `shared` by two processes at once,
`orphaned` by two of which one was killed. Prints how many children were really killed, and how many cells each of the two
sharing processes answered.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from lengthwise.evaluation.evaluate import evaluate
from lengthwise.evaluation.sweep import in_process
from lengthwise.models.load import load

KILLS = 10


def work(model: Any, tokenizer: Any, out: Path) -> None:
    methods = ["none", "truncate", "constant:tau=0.5"]
    common = {"samples": 5, "batch_tokens": 640, "out": out, "show_progress": False}
    evaluate(model, tokenizer, methods, ["passkey"], [240, 280, 300], **common)


def child(model: Any, tokenizer: Any, out: Path) -> int:
    if pid := os.fork():
        return pid
    answered = []
    real = in_process.answer_cell
    in_process.answer_cell = lambda *args: (answered.append(args[1]), real(*args))[1]
    status = 1
    try:
        work(model, tokenizer, out)
        (out.parent / f"{out.name}-{os.getpid()}").write_text(str(len(answered)))
        status = 0
    finally:
        os._exit(status)


def finished(pid: int) -> bool:
    """False when it was killed; any other end than a good one ends everything."""
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert status == 0, status
    return True


def kill_at_random(model: Any, tokenizer: Any, out: Path, duration: float) -> int:
    randomness, kills = random.Random(0), 0
    while kills < KILLS:
        pid = child(model, tokenizer, out)
        time.sleep(randomness.uniform(0.0, duration / 6))
        os.kill(pid, signal.SIGKILL)
        if finished(pid):
            break
        kills += 1
    assert finished(child(model, tokenizer, out))
    return kills


def main() -> None:
    torch.set_num_threads(1)
    model, tokenizer = load(sys.argv[1])
    folder = Path(sys.argv[2])
    start = time.monotonic()
    assert finished(child(model, tokenizer, folder / "whole"))
    duration = time.monotonic() - start
    kills = kill_at_random(model, tokenizer, folder / "killed", duration)
    both = [child(model, tokenizer, folder / "shared") for _ in range(2)]
    for pid in both:
        assert finished(pid)
    shares = [int((folder / f"shared-{pid}").read_text()) for pid in both]
    victim, heir = (child(model, tokenizer, folder / "orphaned") for _ in range(2))
    time.sleep(duration / 4)
    os.kill(victim, signal.SIGKILL)
    assert not finished(victim)
    assert finished(heir)
    sys.stdout.write(json.dumps({"kills": kills, "shares": shares}))


if __name__ == "__main__":
    main()
