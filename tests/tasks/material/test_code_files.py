"""Folders of code."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks.material.code_files import CodeFile, read_code, shuffled, standard_library

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
