"""bAbI's files: what is read of them, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.errors import BadInput
from lengthwise.tasks.material.babi import Story, read_stories

FILE = """1 Mary took the milk.
2 Mary went to the kitchen.
3 Where is the milk? \tkitchen\t1 2
4 John went to the garden.
5 Where is John?\tgarden\t4
1 Mary went to the office.
2 Where is Mary?\toffice\t1
"""


def file_of(folder: Path, text: str) -> Path:
    path = folder / "qa.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_question_is_about_the_facts_of_its_story_before_it(tmp_path: Path) -> None:
    labels = ("garden", "kitchen", "office")
    told = ("Mary took the milk.", "Mary went to the kitchen.", "John went to the garden.")
    assert read_stories(file_of(tmp_path, FILE)) == [
        Story(told[:2], "Where is the milk?", "kitchen", (0, 1), labels),
        Story(told, "Where is John?", "garden", (2,), labels),
        Story(("Mary went to the office.",), "Where is Mary?", "office", (0,), labels),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no questions"),
        ("1 Mary went to the office.\n", "holds no questions"),
        ("Mary went to the office.\n", "line 1 of .* does not begin with a number: 'Mary went"),
        ("1 Mary left.\n2 Where is Mary?\toffice\n", "line 2 of .* is no question, answer and numbers of facts"),
        ("1 Mary left.\n2 Where is Mary?\toffice\tone\n", "line 2 of .* is no question, answer and numbers of facts"),
        ("1 Mary left.\n2 Where is Mary?\t\t1\n", "line 2 of .*: a question needs an answer"),
        ("1 Mary left.\n2 Where is Mary?\toffice\t\n", "line 2 of .* is no question, answer and numbers of facts"),
        ("1 Mary left.\n2 Where is Mary?\toffice\t7\n", r"line 2 of .*: the question follows from \[7\], which is no fact"),
    ],
)
def test_what_is_no_babi_file_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=complaint):
        read_stories(file_of(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read the text file"):
        read_stories(tmp_path / "nothing.txt")
