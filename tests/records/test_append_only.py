"""Files of JSON lines: nothing is lost by a kill, a torn line is healed, nothing wrong is written."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.errors import BadInput
from lengthwise.records import Record, read_lines
from lengthwise.records.append_only import AppendOnly
from tests.records.samples import RECORD, records


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, 10**6))
def test_a_line_torn_at_any_byte_is_healed_and_all_lines_before_it_stay(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("torn") / "records.jsonl"
    AppendOnly(path, Record).append(records(5))
    whole = path.read_bytes()
    cut %= len(whole) + 1
    path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    file = AppendOnly(path, Record)
    assert sorted(line.index for line in file.lines.values()) == list(range(kept))
    file.append(records(5))
    assert path.read_bytes() == whole


def test_a_writer_heals_what_another_one_left_torn_while_it_was_open(tmp_path: Path) -> None:
    file = AppendOnly(tmp_path / "records.jsonl", Record)
    file.append(records(1))
    with file.path.open("a") as other:
        other.write('{"model": "m", "meth')
    file.append(records(2))
    assert [line.index for line in read_lines(file.path, Record)] == [0, 1]


def test_a_damaged_file_is_refused_with_all_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    AppendOnly(path, Record).append(records(1))
    damaged = b"not JSON\n" + path.read_bytes()[:-1]
    path.write_bytes(damaged)
    with pytest.raises(BadInput, match=r"line 1 of .* is damaged"):
        AppendOnly(path, Record)
    assert path.read_bytes() == damaged


def test_a_reader_leaves_a_torn_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    AppendOnly(path, Record).append(records(2))
    torn = path.read_bytes()[:-5]
    path.write_bytes(torn)
    assert len(read_lines(path, Record)) == 1
    assert path.read_bytes() == torn
    assert read_lines(tmp_path / "none.jsonl", Record) == []


def test_a_field_with_a_default_may_be_missing_from_older_lines(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Later:
        name: str
        mood: str = "calm"

        @property
        def key(self) -> str:
            return self.name

    path = tmp_path / "lines.jsonl"
    path.write_text('{"name": "a"}\n{"name": "b", "mood": "wild"}\n')
    assert read_lines(path, Later) == [Later("a"), Later("b", "wild")]
    path.write_text('{"mood": "wild"}\n')
    with pytest.raises(BadInput, match="it has no 'name'"):
        read_lines(path, Later)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendOnly(tmp_path / "records.jsonl", Record)
    file.append(records(1))
    before, write = file.path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, text: write(descriptor, text[:7]))
    with pytest.raises(BadInput, match=r"^cannot write .*records\.jsonl: No space left on device; give another place$"):
        file.append(records(2))
    monkeypatch.undo()
    assert file.path.read_bytes() == before
    file.append(records(2))
    assert len(read_lines(file.path, Record)) == 2


def _append_for_ever(path: Path, said: Any) -> None:
    file = AppendOnly(path, Record)
    for index in range(10**6):
        file.append([replace(RECORD, index=index, prediction="x" * 5000)])
        said.value = index


def test_a_kill_loses_no_record_whose_append_has_returned(tmp_path: Path) -> None:
    path, randomness, context = tmp_path / "records.jsonl", random.Random(0), multiprocessing.get_context("fork")
    finished = -1
    for _ in range(10):
        said = context.Value("l", -1, lock=False)
        process = context.Process(target=_append_for_ever, args=(path, said))
        process.start()
        time.sleep(randomness.uniform(0.02, 0.2))
        process.kill()
        process.join()
        finished = max(finished, said.value)
        indices = [line.index for line in read_lines(path, Record)]
        # The last append may have reached the disk without being told of
        assert indices == list(range(len(indices)))
        assert len(indices) - 1 >= finished
    assert finished > 10


def test_a_full_disk_that_is_known_late_leaves_the_old_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendOnly(tmp_path / "records.jsonl", Record)
    file.append(records(1))
    before, sync = file.path.read_bytes(), os.fsync

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"^cannot write .*records\.jsonl: No space left on device; give another place$"):
        file.append(records(2))
    assert file.path.read_bytes() == before
    monkeypatch.setattr(os, "fsync", sync)
    file.append(records(2))
    assert len(read_lines(file.path, Record)) == 2


@pytest.mark.parametrize(("make", "reason"), [(Path.mkdir, "Is a directory"), (os.mkfifo, "it is a pipe, not a file")])
def test_what_is_no_file_is_neither_read_nor_appended_to(tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    path = tmp_path / "records.jsonl"
    make(path)
    with pytest.raises(BadInput, match=rf"^cannot write .*records\.jsonl: {reason}; give another place$"):
        AppendOnly(path, Record)
    with pytest.raises(BadInput, match=rf"^cannot read .*records\.jsonl: {reason}$"):
        read_lines(path, Record)


def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(BadInput, match=r"^cannot write .*records\.jsonl: Permission denied; give another place$"):
        AppendOnly(tmp_path / "records.jsonl", Record)
