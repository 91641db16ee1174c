"""Official files of LongEval, here with a few cases of our own words in the same keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks import TASKS, Sample

TOKENIZER = ByT5Tokenizer()
NUMBERS = {"red-cup": 12, "old-boat": 34567, "odd-fork": 890, "tin-door": 41, "wet-rope": 5}


def line_case(at: int) -> dict[str, Any]:
    name = list(NUMBERS)[at]
    record = "".join(f"line {key}: REGISTER_CONTENT is <{value}>\n" for key, value in NUMBERS.items())
    return {
        "random_idx": [name, at],
        "expected_number": NUMBERS[name],
        "num_lines": len(NUMBERS),
        "correct_line": f"line {name}: REGISTER_CONTENT is <{NUMBERS[name]}>\n",
        "prompt": f"Keep this record.\n\n{record}\nIt ends here. What does line {name} hold? A number, please. ",
        "token_size": -1,
    }


def topic_case() -> dict[str, Any]:
    talk = "USER: Let me discuss the age of trees. \n ASSISTANT: Why not? \n USER: Now the taste of rain."
    prompt = f"A talk. {talk} It ends here. Which topic came first? Its name only. No summary."
    return {"test_id": 0, "prompt": prompt, "topics": ["The age of trees", "The taste of rain"], "prompt_length": -1}


def file_of(folder: Path, *cases: dict[str, Any]) -> Path:
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return path


def test_lines_are_read_with_their_number_and_place(tmp_path: Path) -> None:
    cases = [line_case(at) for at in (0, 1, 4)]
    assert TASKS["line"].read(TOKENIZER, file_of(tmp_path, *cases)) == [
        Sample(case["prompt"], target, len(case["prompt"]) + 1, depth, f"What does line {name} hold? A number, please. ")
        for case, name, target, depth in zip(
            cases, ("red-cup", "old-boat", "wet-rope"), ("12", "34567", "5"), (0.0, 0.25, 1.0), strict=True
        )
    ]


def test_topics_are_read_with_the_first_as_target(tmp_path: Path) -> None:
    (sample,) = TASKS["topic"].read(TOKENIZER, file_of(tmp_path, topic_case()))
    assert (sample.target, sample.depth) == ("The age of trees", 0.0)
    assert sample.prompt == topic_case()["prompt"]
    assert sample.question == "Which topic came first? Its name only. No summary."


@pytest.mark.parametrize(
    ("task", "case", "complaint"),
    [
        ("line", {**line_case(1), "random_idx": ["old-boat", 5]}, r"'random_idx' is \['old-boat', 5\]; .* index below 5"),
        ("line", {**line_case(1), "random_idx": ["old-boat"]}, "it should be a name and an index below 5"),
        ("line", {**line_case(1), "expected_number": "12"}, "'expected_number' should be the number asked for"),
        ("line", topic_case(), "has no key 'expected_number'; it should hold the number asked for .or 'target'"),
        ("topic", line_case(1), "has no key 'topics'; it should hold the list of topics .or 'target'"),
        ("topic", {**topic_case(), "topics": []}, "'topics' is empty"),
        ("passkey", line_case(1), "has no key 'target'"),
    ],
)
def test_another_layout_is_refused_with_line_and_key(task: str, case: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"line 1 of .*{complaint}"):
        TASKS[task].read(TOKENIZER, file_of(tmp_path, case))


@pytest.mark.parametrize("key", ["prompt", "expected_number", "random_idx", "num_lines"])
def test_a_missing_key_is_named(key: str, tmp_path: Path) -> None:
    case = line_case(2)
    del case[key]
    with pytest.raises(BadInput, match=f"line 2 of .* has no key '{key}'"):
        TASKS["line"].read(TOKENIZER, file_of(tmp_path, line_case(1), case))
