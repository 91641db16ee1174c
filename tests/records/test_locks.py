"""Claims: held by one process at a time, and free again when their holder is gone."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from lengthwise.records.locks import claim


def _hold(path: Path, held: Any, release: Any) -> None:
    with claim(path) as mine:
        assert mine
        held.set()
        release.wait(10)


def test_a_claim_is_seen_by_others_and_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / ".claim-x"
    context = multiprocessing.get_context("fork")
    for ending in ("release", "kill"):
        held, release = context.Event(), context.Event()
        process = context.Process(target=_hold, args=(path, held, release))
        process.start()
        assert held.wait(10)
        with claim(path) as mine:
            assert not mine
        release.set() if ending == "release" else process.kill()
        process.join(10)
        with claim(path) as mine:
            assert mine
            with claim(path) as again:
                assert not again
        assert not path.exists()


def test_a_claim_on_a_file_that_was_removed_meanwhile_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our opening the file and locking it, its holder finished, removed it, and a third process claimed it."""
    path, fcntl = tmp_path / ".claim-x", pytest.importorskip("fcntl")
    lock, opened = fcntl.flock, []

    def late(descriptor: int, operation: int) -> None:
        if not opened:
            path.unlink()
            opened.append(os.open(path, os.O_RDWR | os.O_CREAT))
            lock(opened[0], fcntl.LOCK_EX)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with claim(path) as mine:
        assert not mine
    os.close(opened[0])
