"""Folders of code, and prompts fit_lines with their lines."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks.material import code_files
from lengthwise.tasks.material.code_files import CodeFile, fit_lines, read_code, shuffled, standard_library

TOKENIZER = ByT5Tokenizer()


def folder_of(path: Path, **files: str) -> Path:
    for name, text in files.items():
        file = path / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def test_code_is_known_by_its_name_and_read_in_order(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path, b_py="\n\nx = 1  \n\n\ty\x0c = 2\n\n", a__main_RS="fn main() {}\r\n", notes_txt="no", empty_py=" \n"
    )
    folder_of(tmp_path, _git__a_py="no", node__x_py="z", **{"site-packages__p_py": "no"})
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    assert read_code(folder) == (
        CodeFile("a/main.RS", ("fn main() {}",)),
        CodeFile("b.py", ("x = 1", "", "\ty\x0c = 2")),
        CodeFile("node/x.py", ("z",)),
    )
    assert [file.name for file in read_code(folder, {"node"})] == ["a/main.RS", "b.py"]


@pytest.mark.parametrize(("where", "complaint"), [("nowhere", "is no folder"), ("", "holds no files of code")])
def test_folders_without_code_are_refused(where: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=complaint):
        read_code(tmp_path / where)


def test_the_standard_library_is_there_without_its_tests() -> None:
    names = {file.name for file in standard_library()}
    assert {"json/decoder.py", "argparse.py"} <= names
    assert not any(part in ("test", "tests", "site-packages", "encodings") for name in names for part in name.split("/"))


def test_files_come_in_a_random_order_again_and_again() -> None:
    files = [CodeFile(str(k), ("x",)) for k in range(20)]
    names = [file.name for file in itertools.islice(shuffled(files, random.Random(0)), 40)]
    assert names[:20] == names[20:]
    assert sorted(names[:20]) == sorted(file.name for file in files)
    assert names[:20] != [file.name for file in files]
    with pytest.raises(BadInput, match="no files of code"):
        shuffled([], random.Random(0))


@pytest.mark.parametrize("length", [5, 40, 41, 63, 999])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_prompt_of_bytes_is_filled_to_the_last_one(length: int, backwards: bool) -> None:
    lines = [f"line {k} of many" for k in range(100)]

    def prompt_of(kept: list[str]) -> str:
        return "a:\n" + "".join(f"{line}\n" for line in (reversed(kept) if backwards else kept))

    kept = fit_lines(TOKENIZER, length, itertools.cycle(lines), prompt_of, backwards)
    # Nothing of a next line fits in what a line break takes
    assert len(TOKENIZER(prompt_of(kept)).input_ids) in ({length} if len(kept) else {4, 5})
    whole = kept[:-1]
    assert whole == list(itertools.islice(itertools.cycle(lines), len(whole)))
    if kept:
        following = lines[len(whole) % 100]
        assert following.endswith(kept[-1]) if backwards else following.startswith(kept[-1])


def test_a_prompt_never_has_more_tokens_than_asked_for(pieces: Any) -> None:
    for length in range(20, 60):
        kept = fit_lines(pieces, length, itertools.cycle(["    return self._value", "", "x = [1, 2]"]), "\n".join)
        assert length - 1 <= len(pieces("\n".join(kept)).input_ids) <= length


def test_a_length_without_room_is_refused() -> None:
    with pytest.raises(BadInput, match="a prompt of 3 tokens has no room for the question, which takes 6"):
        fit_lines(TOKENIZER, 3, itertools.repeat("x"), lambda kept: "ask: " + "".join(kept))


def test_few_whole_prompts_are_counted_however_uneven_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a length of 15,000 tokens each count costs as much as making the prompt should."""

    counted = 0

    def count(tokenizer: Any, text: str) -> int:
        nonlocal counted
        counted += 1
        return len(text)

    monkeypatch.setattr(code_files, "token_count", count)
    randomness = random.Random(0)
    for length in (400, 5000, 20000):
        lines = ["x" * randomness.choice([0, 0, 3, 30, 200]) for _ in range(5000)]
        counted = 0
        kept = fit_lines(None, length, iter(lines), "\n".join)
        assert counted <= 16
        # One letter more would be one too many, unless only the line break is left
        assert length - 1 <= len("\n".join(kept)) <= length
        assert kept[:-1] == lines[: len(kept) - 1]
