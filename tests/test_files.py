"""Files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.files import write_whole


def test_text_and_bytes_are_written_into_folders_that_were_missing(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "a.txt", "caf\u00e9\n")
    write_whole(tmp_path / "new" / "b.bin", b"\x00\xff")
    assert (tmp_path / "new" / "a.txt").read_bytes() == "caf\u00e9\n".encode()
    assert (tmp_path / "new" / "b.bin").read_bytes() == b"\x00\xff"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
