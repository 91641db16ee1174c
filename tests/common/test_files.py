"""Files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.common.files import save_whole, write_whole
from lengthwise.errors import BadInput


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


class Part:
    """Saves itself as a model or a tokenizer does, or fails at it."""

    def __init__(self, name: str, content: str | None) -> None:
        self.name, self.content = name, content

    def save_pretrained(self, folder: Path) -> None:
        if self.content is None:
            raise OSError(28, "no space left")
        (folder / self.name).write_text(self.content)


def test_parts_are_saved_into_one_folder_that_all_may_read(tmp_path: Path) -> None:
    out = tmp_path / "new" / "model"
    save_whole(out, [Part("model", "a"), Part("tokenizer", "b")])
    assert {file.name: file.read_text() for file in out.iterdir()} == {"model": "a", "tokenizer": "b"}
    assert out.stat().st_mode & 0o777 == 0o755
    assert list(out.parent.iterdir()) == [out]


def test_a_folder_gives_way_when_it_is_empty_or_when_told_to(tmp_path: Path) -> None:
    out = tmp_path / "model"
    out.mkdir()
    save_whole(out, [Part("model", "old")])
    with pytest.raises(BadInput, match=r"^cannot write .*model: Directory not empty; give another place$"):
        save_whole(out, [Part("other", "new")])
    assert [file.read_text() for file in out.iterdir()] == ["old"]
    save_whole(out, [Part("other", "new")], overwrite=True)
    assert [file.read_text() for file in out.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [out]


def test_a_part_that_fails_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "model"
    save_whole(out, [Part("model", "old")])
    with pytest.raises(BadInput, match=r"^cannot write .*model: no space left; give another place$"):
        save_whole(out, [Part("model", "new"), Part("tokenizer", None)], overwrite=True)
    assert [file.read_text() for file in out.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [out]


class Rust:
    """Saves itself by a library in Rust, whose errors are its own."""

    def __init__(self, complaint: str) -> None:
        self.complaint = complaint

    def save_pretrained(self, folder: Path) -> None:
        raise RuntimeError(self.complaint)


def test_a_full_disk_is_known_in_other_libraries_words_and_their_other_errors_are_passed_on(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"model: I/O error: No space left on device \(os error 28\); give another place$"):
        save_whole(tmp_path / "model", [Rust("I/O error: No space left on device (os error 28)")])
    with pytest.raises(RuntimeError, match="tensors share memory"):
        save_whole(tmp_path / "model", [Rust("tensors share memory")])
    assert list(tmp_path.iterdir()) == []
