"""Commands stopped by signals: exit status, what they say, what they leave."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lengthwise.cli import run
from lengthwise.cli.stopping import termination_as_interrupt
from lengthwise.evaluation.sweep import cells
from lengthwise.records import Record, read_lines
from tests.cli.conftest import LENGTH, listing
from tests.conftest import Said

LONG = 300
LAST = "nothing half-written was left behind, give the same command again"
SIGNALS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


@pytest.fixture(autouse=True)
def _unhandled() -> Iterator[None]:
    """A SIGTERM that no command takes fails a test instead of ending the tests; SIGINT is taken even behind a shell's `&`."""

    def unhandled(*_: Any) -> None:
        raise AssertionError("nobody took the signal")

    before = signal.signal(signal.SIGTERM, unhandled)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, interrupt)
    assert signal.signal(signal.SIGTERM, before) is unhandled


@pytest.mark.parametrize(("number", "status", "word"), SIGNALS, ids=["SIGINT", "SIGTERM"])
def test_a_signal_ends_an_evaluation_in_order_and_the_same_command_goes_on(
    number: int,
    status: int,
    word: str,
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lengthwise: Callable[..., Said],
) -> None:
    real, calls = cells.greedy_answers, []

    def stopped(*arguments: Any) -> list[str]:
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), number)
        return real(*arguments)

    monkeypatch.setattr(cells, "greedy_answers", stopped)
    command = ("evaluate", models / "t5", "--task", "passkey", "--length", LONG, "--samples", 2, "--batch-tokens", 1)
    said = lengthwise(*command, "--out", tmp_path)
    assert (said.status, said.out) == (status, "")
    assert said.err[-2:] == [
        f"lengthwise: what was finished is in {tmp_path}; the same command goes on from there",
        f"lengthwise: {word}; {LAST}",
    ]
    assert not [name for name in listing(tmp_path) if ".claim" in name or ".part" in name]
    assert len(read_lines(tmp_path / "records.jsonl", Record)) == 1
    assert lengthwise(*command, "--out", tmp_path).status == 0
    assert len(read_lines(tmp_path / "records.jsonl", Record)) == 2


def test_memory_that_runs_out_leaves_what_was_finished(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    calls: list[int] = []

    def exhausted(*arguments: Any) -> list[str]:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory")
        return real(*arguments)

    real = cells.greedy_answers
    command = ("evaluate", models / "t5", "--task", "passkey", "--length", LONG, "--samples", 2, "--batch-tokens", 1)
    with monkeypatch.context() as patched:
        patched.setattr(cells, "greedy_answers", exhausted)
        said = lengthwise(*command, "--out", tmp_path)
    assert (said.status, said.out) == (2, "")
    assert said.err[-1].startswith("lengthwise: there is not enough memory; give smaller batches")
    assert len(read_lines(tmp_path / "records.jsonl", Record)) == 1
    assert not [name for name in listing(tmp_path) if ".claim" in name or ".part" in name]
    assert lengthwise(*command, "--out", tmp_path).status == 0
    assert len(read_lines(tmp_path / "records.jsonl", Record)) == 2


@pytest.mark.parametrize(("number", "status", "word"), SIGNALS, ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("command", ["calibrate", "misalignment"])
def test_a_signal_ends_every_command_with_one_line(
    number: int,
    status: int,
    word: str,
    command: str,
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lengthwise: Callable[..., Said],
) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), number)

    monkeypatch.setattr(importlib.import_module("lengthwise.models.load"), "load", stopped)
    options = ("--length", LENGTH, "--out", tmp_path / "a.json") if command == "calibrate" else ()
    assert lengthwise(command, models / "t5", *options) == Said(status, "", [f"lengthwise: {word}; {LAST}"])
    assert listing(tmp_path) == []


def test_a_second_signal_does_not_break_into_what_is_put_in_order() -> None:
    with termination_as_interrupt() as received:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGTERM]


def test_a_thread_of_its_own_leaves_signals_alone() -> None:
    handlers: list[Any] = []

    def work() -> None:
        with termination_as_interrupt() as received:
            handlers.extend((signal.getsignal(signal.SIGTERM), received))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before, []]


def test_an_interrupt_that_an_import_lost_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """numpy, half imported, recurses for ever where it is asked for the rest."""

    def half_imported(*_: object, **__: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise RecursionError

    monkeypatch.setattr(typer.main, "get_command", lambda _: type("", (), {"main": half_imported})())
    assert run(["methods"]) == 130
    assert capsys.readouterr().err.startswith("lengthwise: interrupted")
