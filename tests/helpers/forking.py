"""Processes that tests kill or let work together: forks of the test's own, because each start of torch costs seconds."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch


def forked(work: Callable[[], object], output: Path | None = None) -> int:
    """The process id of a fork that does the work and ends with the status it returns; `output` gets what it prints."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    status = 1
    try:
        # A fork has not the threads of the process it comes from: arithmetic that wants several would wait for them for ever
        torch.set_num_threads(1)
        if output is not None:
            sys.stdout = output.open("w")
        status = int(work() or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # To end in order would wait for those threads, too
        os._exit(status)


def finished(pid: int) -> bool:
    """Wait for a fork; False when it was killed. Any other end than a good one is an error."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == -signal.SIGKILL:
        return False
    assert status == 0, status
    return True
