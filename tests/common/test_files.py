"""Files that are read without waiting, and appear whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lengthwise
from lengthwise.common import files
from lengthwise.common.files import LARGEST, append_text, check_writable, read_file, save_whole, write_whole
from lengthwise.errors import BadInput


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Sets the umask of this test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_text_and_bytes_are_written_into_folders_that_were_missing(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "a.txt", "caf\u00e9\n")
    write_whole(tmp_path / "new" / "b.bin", b"\x00\xff")
    assert (tmp_path / "new" / "a.txt").read_bytes() == "caf\u00e9\n".encode()
    assert (tmp_path / "new" / "b.bin").read_bytes() == b"\x00\xff"


def no_space(*_: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_permission(*_: Any) -> Any:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize(("call", "fails"), [("os.fsync", no_space), ("pathlib.Path.replace", no_permission)])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, fails: Callable[..., Any]
) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")
    monkeypatch.setattr(call, fails)
    with pytest.raises(BadInput, match=r"^cannot write .*a\.txt: (No space left|Permission denied).*; give another place$"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_too_large_for_the_disk_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(BadInput, match=r"^cannot write .*a\.txt: File too large"):
            write_whole(path, b"x" * 100_000)
        with pytest.raises(BadInput, match=r"^cannot write .*losses: File too large"):
            append_text(tmp_path / "losses", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old"
    assert {file.name for file in tmp_path.iterdir()} == {"a.txt", "losses"}


def test_an_interrupt_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    write_whole(tmp_path / "a.txt", "old")
    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a.txt", "new")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_permission_bits_stay_and_new_files_have_those_of_the_umask(tmp_path: Path, umask: Callable[[int], int]) -> None:
    write_whole(tmp_path / "a.txt", "old")
    assert mode(tmp_path / "a.txt") == 0o644
    for bits in (0o600, 0o664):
        (tmp_path / "a.txt").chmod(bits)
        write_whole(tmp_path / "a.txt", "new")
        assert mode(tmp_path / "a.txt") == bits
    umask(0o077)
    write_whole(tmp_path / "b.txt", "new")
    assert mode(tmp_path / "b.txt") == 0o600


def test_a_file_that_its_owner_may_not_write_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "a.txt", "old")
    # Tests may run as root, who may write all files
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(BadInput, match=r"^cannot write .*a\.txt: Permission denied; give another place$"):
        write_whole(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_name_planted_beside_a_file_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / f".part-{os.getpid()}-r.html").symlink_to(tmp_path / "victim")
    write_whole(tmp_path / "r.html", "page")
    assert (tmp_path / "victim").read_text() == "mine"
    # Whoever guesses the name is refused
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    (tmp_path / ".part-guessed").symlink_to(tmp_path / "victim")
    with pytest.raises(BadInput, match="File exists"):
        write_whole(tmp_path / "r.html", "page")
    assert (tmp_path / "victim").read_text() == "mine"


def test_links_are_followed_also_where_they_end_in_nothing(tmp_path: Path) -> None:
    for name in ("there", "elsewhere/not yet"):
        link = tmp_path / f"link to {name[:5]}"
        link.symlink_to(tmp_path / name)
        write_whole(link, "new")
        assert link.is_symlink()
        assert (tmp_path / name).read_text() == "new"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(BadInput, match=r"^cannot write .*loop: Too many levels of symbolic links"):
        write_whole(tmp_path / "loop", "new")


def test_a_pipe_is_written_through_and_one_without_a_reader_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match=r"^cannot write .*pipe: "):
        write_whole(pipe, "lost")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_devices_are_written_through_and_folders_and_sockets_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    write_whole(link, "nothing")
    check_writable(link)
    assert link.is_symlink()
    assert Path("/dev/null").is_char_device()
    with pytest.raises(BadInput, match=r"^cannot write /dev/full: No space left on device; give another place$"):
        write_whole("/dev/full", "nothing")
    with pytest.raises(BadInput, match=r": it is a directory; give another place$"):
        write_whole(tmp_path, "nothing")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(BadInput, match=r"^cannot write .*socket: "):
            write_whole(tmp_path / "socket", "nothing")
        with pytest.raises(OSError, match="No such device"):
            read_file(tmp_path / "socket")


@pytest.mark.parametrize("to_file", [True, False])
def test_standard_output_by_another_name_is_added_to(tmp_path: Path, to_file: bool) -> None:
    code = "from lengthwise.common.files import write_whole; print('before'); write_whole('link', 'page\\n'); print('after')"
    (tmp_path / "link").symlink_to("/dev/stdout")
    with (tmp_path / "output").open("wb") as file:
        surroundings = {**os.environ, "PYTHONPATH": str(Path(lengthwise.__file__).parents[1])}
        where = file if to_file else subprocess.PIPE
        done = subprocess.run([sys.executable, "-c", code], stdout=where, cwd=tmp_path, env=surroundings, check=True)
    written = (tmp_path / "output").read_bytes() if to_file else done.stdout
    assert written == b"before\npage\nafter\n"


@pytest.mark.parametrize("name", [b"caf\xe9", b"two\nlines", b"-", b" ", b"\xff" * 255])
def test_names_may_be_any_bytes(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    write_whole(path, "here")
    assert read_file(path) == b"here"


@pytest.mark.parametrize("name", ["n" * 300, "n/" * 3000 + "n", "null\0byte", "\ud800"])
def test_names_that_no_file_can_have_are_refused(tmp_path: Path, name: str) -> None:
    for act in (lambda path: write_whole(path, "here"), check_writable):
        with pytest.raises(BadInput, match=r"(?s)^cannot write .*: [^\n]*; give another place$"):
            act(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_text_that_has_no_bytes_is_written_escaped(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.csv", "caf\udce9")
    assert (tmp_path / "a.csv").read_text() == "caf\\udce9"


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a pipe, not a file"):
        read_file(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a device, not a file"):
        read_file("/dev/zero")
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(OSError, match="it is larger than 4 GiB"):
        read_file(tmp_path / "large")


def test_all_outputs_go_through_one_writer() -> None:
    writes = re.compile(
        r"write_text|write_bytes|open\([^)]*[\"'][rwax]?b?[wax+]|O_WRONLY|O_CREAT|json\.dump\(|savez|np\.save|torch\.save\("
        r"|save_file|to_csv|\.save_pretrained\(|os\.replace|\.rename\("
    )
    # The writer itself, lines that several processes append, what is thrown away when nobody reads standard output
    homes = {"common/files.py", "records/append_only.py", "cli/standard_output.py"}
    # What goes into a folder that `save_whole` lets appear when it is whole, or is thrown away
    names = ("export", "checkpoint", "ctranslate2_model", "onnx_graphs", "run_plain")
    homes |= {f"calibration/export/{name}.py" for name in names}
    source = Path(lengthwise.__file__).parent
    found = {str(file.relative_to(source)) for file in source.rglob("*.py") if writes.search(file.read_text())}
    assert found == homes


def test_a_file_in_a_folder_that_is_still_to_be_made_can_be_written(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deeper" / "a.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["folder", "file/below.json"])
def test_what_cannot_be_written_is_refused_in_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=f"^cannot write .*{place}: .*; give another place$"):
        check_writable(tmp_path / place)


class Part:
    """Saves itself as a model or a tokenizer does, or fails at it."""

    def __init__(self, name: str, content: str | None) -> None:
        self.name, self.content = name, content

    def save_pretrained(self, folder: Path) -> None:
        if self.content is None:
            raise OSError(28, "no space left")
        (folder / self.name).write_text(self.content)


@pytest.mark.parametrize(("mask", "bits"), [(0o022, 0o755), (0o077, 0o700)])
def test_parts_are_saved_into_one_folder_with_the_bits_of_the_umask(
    tmp_path: Path, umask: Callable[[int], int], mask: int, bits: int
) -> None:
    umask(mask)
    out = tmp_path / "new" / "model"
    save_whole(out, [Part("model", "a"), Part("tokenizer", "b")])
    assert {file.name: file.read_text() for file in out.iterdir()} == {"model": "a", "tokenizer": "b"}
    assert mode(out) == bits
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


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_folder_comes_back_when_another_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """As on systems that cannot exchange two folders in one step."""
    out = tmp_path / "model"
    save_whole(out, [Part("model", "old")])
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise error
        return rename(self, target)

    monkeypatch.setattr(files, "_exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises((error, BadInput)):
        save_whole(out, [Part("model", "new")], overwrite=True)
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
