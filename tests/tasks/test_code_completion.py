"""Code completion: which line is asked for, what stands before it, and both scores on answers made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rapidfuzz import fuzz
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks import TASKS, code_completion
from lengthwise.tasks.code_completion import edit_similarity
from lengthwise.tasks.material.code_files import CodeFile, standard_library

TOKENIZER = ByT5Tokenizer()
TASK = TASKS["code_completion"]
HEAD = tuple(f"x{k} = {k}" for k in range(20))
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=30)


def similarity(a: str, b: str) -> float:
    """2 LCS / (n + m) by the textbook's table."""
    longest = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            longest[i + 1][j + 1] = longest[i][j] + 1 if x == y else max(longest[i][j + 1], longest[i + 1][j])
    return 2 * longest[-1][-1] / (len(a) + len(b)) if a or b else 1.0


@settings(max_examples=150, deadline=None)
@given(a=LINE, b=LINE)
@example(a="abcdef", b="bxcxdabx")
@example(a="", b="x")
def test_edit_similarity_is_that_of_the_longest_common_subsequence_and_rapidfuzzs_ratio(a: str, b: str) -> None:
    said, wanted = a.strip(), b.strip()
    assert edit_similarity(a, b) == pytest.approx(similarity(said, wanted), abs=1e-12)
    assert edit_similarity(a, b) == fuzz.ratio(said, wanted) / 100


@pytest.mark.parametrize(
    ("prediction", "target", "value"),
    [
        ("return x", "return x", 1.0),
        ("    return x  \nreturn y", "return x", 1.0),
        # LCS "return " of 8 + 8 letters
        ("return y", "return x", 14 / 16),
        # LCS "bcd" of 6 + 8 letters; difflib takes "ab" and is left with nothing
        ("abcdef", "bxcxdabx", 6 / 14),
        ("xyz", "abc", 0.0),
        ("", "abc", 0.0),
    ],
)
def test_edit_similarity_of_answers_made_by_hand(prediction: str, target: str, value: float) -> None:
    assert edit_similarity(prediction, target) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(
    ("prediction", "score"),
    [
        ("return a + b", 1.0),
        ("\n\n    return  a\t+ b  \nreturn c", 1.0),
        ("return a+b", 0.0),
        ("Return a + b", 0.0),
        ("return a + b;", 0.0),
        ("return (a + b)", 0.0),
        ("return b + a", 0.0),
        ("return a + b  # sum", 0.0),
        ("", 0.0),
    ],
)
def test_exact_match_ignores_white_space_only(prediction: str, score: float) -> None:
    assert TASK.score(prediction, "return a + b") == score


def test_the_prompt_is_the_code_before_the_line_then_other_files() -> None:
    files = {file.lines: file.name for file in standard_library()}
    for sample in TASK.samples(TOKENIZER, 1500, n=5, seed=0):
        _cut, *lines = sample.prompt.removesuffix("\n").split("\n")
        own = [
            text
            for text in files
            for at in range(20, len(text))
            if text[at].strip() == sample.target and text[max(0, at - 8) : at] == tuple(lines[-8:])
        ]
        assert own, "the last lines are those of a file, and the target comes next there"
        assert sample.depth is None
        assert sample.prompt.endswith(sample.question)
        assert 1490 <= sample.tokens <= 1500


def test_the_line_is_the_same_at_every_length() -> None:
    short, long = (TASK.samples(TOKENIZER, length, n=4, seed=3) for length in (400, 3000))
    for a, b in zip(short, long, strict=True):
        assert a.target == b.target
        assert b.prompt.endswith(a.prompt)


def test_where_its_own_file_ends_others_stand_before_it() -> None:
    files = [CodeFile("a.py", (*HEAD, "total = sum(values)")), CodeFile("b.py", ("other = 1", "another = 2"))]
    (sample,) = code_completion.samples(TOKENIZER, 220, n=1, seed=0, files=files)
    assert sample.target == "total = sum(values)"
    assert sample.prompt.endswith("other = 1\nanother = 2\n\n" + "\n".join(HEAD) + "\n")
    (alone,) = code_completion.samples(TOKENIZER, 400, n=1, seed=0, files=files[:1])
    # Alone it begins again, without what comes from the line on
    assert alone.prompt.endswith("\n\n" + "\n".join(HEAD) + "\n")
    assert "total" not in alone.prompt


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("total = sum(values)", True),
        ("        return self._cache", True),
        ("for name in sorted(names):", True),
        ("# a comment (of some length)", False),
        ("// a comment = of some length", False),
        ("plain words without any sign", False),
        ("x = 1", False),
        ("value = " + "1 + " * 20 + "1", False),
        ('"""One line (of text)."""', False),
    ],
)
def test_lines_worth_a_guess_are_asked_for(line: str, asked: bool) -> None:
    files = [CodeFile("a.py", (*HEAD, line))]
    if asked:
        assert code_completion.samples(TOKENIZER, 200, n=1, seed=0, files=files)[0].target == line.strip()
    else:
        with pytest.raises(BadInput, match="no file has a line of code of 10 to 60 letters behind 20 others"):
            code_completion.samples(TOKENIZER, 200, n=1, seed=0, files=files)


def test_lines_of_texts_and_the_first_of_a_file_are_not_asked_for() -> None:
    lines = (*HEAD, "def f(x):", '    """Says (what it does).', "    value = inside(text)", '    """', "    return g(x) + 1")
    samples = code_completion.samples(TOKENIZER, 150, n=30, seed=0, files=[CodeFile("a.py", lines)])
    assert {sample.target for sample in samples} == {"return g(x) + 1"}


def test_a_depth_is_refused() -> None:
    with pytest.raises(BadInput, match=r"code_completion has no depth, and 0\.5 was given"):
        TASK.samples(TOKENIZER, 500, n=1, seed=0, depth=0.5)


def test_a_length_without_room_for_the_line_before_is_refused() -> None:
    with pytest.raises(BadInput, match="a prompt of 5 tokens has no room for the question, which takes 10"):
        code_completion.samples(TOKENIZER, 5, n=1, seed=0, files=[CodeFile("a.py", (*HEAD, "", "total = sum(values)"))])


@pytest.mark.parametrize("case", [{"gt": "  y = 2 "}, {"answers": ["y = 2"]}])
def test_cases_of_lcc_and_longbench_are_read(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "lcc.jsonl"
    path.write_text(json.dumps({"context": "def f():\n    x = 1\n\n", **case}))
    (sample,) = TASK.read(TOKENIZER, path)
    assert (sample.prompt, sample.target, sample.question) == ("def f():\n    x = 1\n", "y = 2", "    x = 1\n")
    assert sample.tokens == len(sample.prompt) + 1


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        ({"context": "x"}, "has no key 'gt'; it should hold the next line"),
        ({"context": "x", "gt": " "}, "the line to be completed is blank"),
        ({"context": "x", "gt": "a\nb"}, "one line is to be completed, not 2"),
        ({"context": "x", "answers": ["a", "b"]}, "should be a list with one line of code"),
        ({"gt": "y"}, "has no key 'context'"),
    ],
)
def test_cases_without_a_line_are_refused(case: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "lcc.jsonl"
    path.write_text(json.dumps(case))
    with pytest.raises(BadInput, match=complaint):
        TASK.read(TOKENIZER, path)
