"""Run a command of lengthwise in a fork of this process, which has torch imported: that takes a fraction of a second."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub.constants
import torch

from lengthwise.cli import main

GRACE = 8.0  # seconds from Ctrl-C until a command is killed
MEMORY = 6 << 30  # bytes that one command may have beside what it inherits
OUT, ERR = "stdout", "stderr"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int  # negative: the signal that ended it
    out: str
    err: str
    seconds: float
    cpu_seconds: float
    interrupted: bool  # Ctrl-C was sent because it took too long


class Fork:
    """A command at work in a folder; what it prints goes to files in another folder."""

    def __init__(self, folder: Path, words: Sequence[str], printed: Path, cap: float, call: Callable[[], None] = main) -> None:
        self.printed, self.cap, self.begun = printed, cap, time.monotonic()
        self.interrupted: float | None = None
        printed.mkdir(parents=True, exist_ok=True)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork() or _work(folder, words, printed, call)

    def poll(self) -> Ended | None:
        """How it ended; None while it goes on. Past the cap it gets Ctrl-C, and where that does not end it is killed."""
        pid, status, used = os.wait4(self.pid, os.WNOHANG)
        now = time.monotonic()
        if not pid:
            if self.interrupted is None and now > self.begun + self.cap:
                self.interrupted = now
                os.kill(self.pid, signal.SIGINT)
            elif self.interrupted is not None and now > self.interrupted + GRACE:
                os.kill(self.pid, signal.SIGKILL)
            return None
        # Whatever it had started
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        out, err = ((self.printed / name).read_text(errors="replace") for name in (OUT, ERR))
        cpu = used.ru_utime + used.ru_stime
        return Ended(os.waitstatus_to_exitcode(status), out, err, now - self.begun, cpu, self.interrupted is not None)

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def run_alone(folder: Path, words: Sequence[str], printed: Path, cap: float, call: Callable[[], None] = main) -> Ended:
    """Run one command and wait for it."""
    fork = Fork(folder, words, printed, cap, call)
    while (ended := fork.poll()) is None:
        time.sleep(0.01)
    return ended


def _work(folder: Path, words: Sequence[str], printed: Path, call: Callable[[], None]) -> int:
    """Be the command: never returns."""
    status = 1
    try:
        os.setsid()
        _detach(printed)
        os.chdir(folder)
        sys.argv = ["lengthwise", *words]
        call()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        sys.stderr.flush()
        # To end in order would wait for threads that a fork has not
        os._exit(status)


def _detach(printed: Path) -> None:
    for descriptor, name, flags in ((0, os.devnull, os.O_RDONLY), (1, OUT, os.O_WRONLY), (2, ERR, os.O_WRONLY)):
        file = os.open(printed / name, flags | os.O_CREAT | os.O_TRUNC * (flags != os.O_RDONLY))
        os.dup2(file, descriptor)
        os.close(file)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    os.environ["RANK"] = "0"
    tempfile.tempdir = str(printed)
