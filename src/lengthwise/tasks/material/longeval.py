"""Read the official cases of LongEval (Li et al. 2023): its files of lines and of topics, told apart by their keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lengthwise.errors import require
from lengthwise.tasks.material.case_files import Case, last_question, read_as
from lengthwise.tasks.sample import Sample, token_count


def read_lines(tokenizer: Any, path: Path) -> list[Sample]:
    """Line retrieval: `prompt`, `expected_number`, and `random_idx` = (name, index) of the line asked for."""
    return read_as(_line, tokenizer, path)


def read_topics(tokenizer: Any, path: Path) -> list[Sample]:
    """Topic retrieval: `prompt` and `topics`, of which the first is asked for."""
    return read_as(_topic, tokenizer, path)


def _line(tokenizer: Any, case: Case) -> Sample:
    number = case.get("expected_number", int, "the number asked for (or 'target', in a file of your own)")
    asked = case.get("random_idx", list, "the name and the index of the line asked for")
    lines = case.get("num_lines", int, "the number of lines")
    inside = len(asked) == 2 and isinstance(asked[1], int) and 0 <= asked[1] < lines
    require(inside, f"{case.place}: 'random_idx' is {asked}; it should be a name and an index below {lines}")
    return _sample(tokenizer, case, str(number), asked[1] / max(1, lines - 1))


def _topic(tokenizer: Any, case: Case) -> Sample:
    topics = case.get("topics", list, "the list of topics (or 'target', in a file of your own)")
    require(bool(topics), f"{case.place}: 'topics' is empty")
    return _sample(tokenizer, case, str(topics[0]), 0.0)


def _sample(tokenizer: Any, case: Case, target: str, depth: float) -> Sample:
    prompt = case.get("prompt", str, "a text")
    return Sample(prompt, target, token_count(tokenizer, prompt), depth, last_question(prompt))
