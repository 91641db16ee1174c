"""Code key retrieval: one function among files of code, and the score of answers made by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from transformers import ByT5Tokenizer

from lengthwise.tasks import TASKS, code_key_retrieval
from lengthwise.tasks.material.code_files import CodeFile

TOKENIZER = ByT5Tokenizer()
FILES = [
    CodeFile(f"{name}.py", tuple(line for k in range(8) for line in (f"def {name}{k}(x):", f"    return x + {k}", "", "")))
    for name in ("alpha", "beta", "gamma")
]


def lines_of(prompt: str) -> tuple[list[str], int]:
    """The lines of code without the function, and before which of them it stands."""
    introduction, *lines, question = prompt.split("\n")
    assert introduction == "# Remember the number that pass_key() returns."
    assert question == "assert pass_key() =="
    at = lines.index("def pass_key():") - 1
    assert (lines[at], *lines[at + 3 : at + 5]) == ("", "", "")
    return lines[:at] + lines[at + 5 :], at


def test_the_function_stands_once_with_a_number_from_1_to_100() -> None:
    for sample in code_key_retrieval.samples(TOKENIZER, 3000, n=10, seed=0):
        assert re.findall(r"def pass_key\(\):\n    return (\d+)\n", sample.prompt) == [sample.target]
        assert sample.prompt.count("pass_key") == 3, "asked for in the beginning and at the end, stated once"
        assert 1 <= int(sample.target) <= 100


@pytest.mark.parametrize("depth", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_the_function_stands_near_the_depth_before_something_new(depth: float) -> None:
    for sample in code_key_retrieval.samples(TOKENIZER, 3000, n=3, seed=0, depth=depth, files=FILES):
        lines, at = lines_of(sample.prompt)
        assert sample.depth == at / len(lines)
        assert sample.depth == pytest.approx(depth, abs=0.05)
        assert at in (0, len(lines)) or lines[at].startswith("def ")
        assert 2900 < sample.tokens <= 3000


def test_where_nothing_new_begins_the_function_stands_at_the_depth() -> None:
    files = [CodeFile("table.py", tuple(f"    {k}," for k in range(50)))]
    (sample,) = code_key_retrieval.samples(TOKENIZER, 800, n=1, seed=0, depth=0.5, files=files)
    lines, at = lines_of(sample.prompt)
    assert at == round(len(lines) / 2)


def test_the_code_around_is_whole_files_one_after_the_other() -> None:
    (sample,) = code_key_retrieval.samples(TOKENIZER, 2500, n=1, seed=1, files=FILES)
    lines, _ = lines_of(sample.prompt)
    names = list(dict.fromkeys(re.findall(r"def ([a-z]+)\d", "\n".join(lines))))
    assert len(names) == 3
    first = next(file for file in FILES if file.name == f"{names[0]}.py")
    assert lines[: len(first.lines)] == list(first.lines)


def test_code_that_has_such_a_function_is_not_ambiguous() -> None:
    files = [CodeFile("own.py", ("def pass_key():", "    return 7", "pass_key()", "x = 1"))]
    (sample,) = code_key_retrieval.samples(TOKENIZER, 400, n=1, seed=0, files=files)
    assert sample.prompt.count("def pass_key") == 1


@pytest.mark.parametrize(
    ("prediction", "score"), [("42", 1.0), (" 42\n\ndef f(): return 7", 1.0), ("042", 0.0), ("7, not 42", 0.0), ("", 0.0)]
)
def test_the_first_integer_is_scored(prediction: str, score: float) -> None:
    assert TASKS["code_key_retrieval"].score(prediction, "42") == score


def test_samples_may_be_made_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "only.py").write_text("\n".join(f"value_{k} = {k}" for k in range(30)))
    task = TASKS["code_key_retrieval"].of(tmp_path)
    (sample,) = task.samples(TOKENIZER, 600, 1, 0)
    assert "value_3 = 3" in sample.prompt
    assert re.fullmatch(rf"{tmp_path.name} \([0-9a-f]{{16}}\)", task.material)
    (tmp_path / "only.py").write_text("x = 1")
    assert TASKS["code_key_retrieval"].of(tmp_path).material != task.material
