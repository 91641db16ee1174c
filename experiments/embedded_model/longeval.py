"""LongEval's layouts and words, read from its official cases while training and written nowhere.

Only the frame of a case is used (introduction, the fixed sentences around each entry, question), the words that name lines,
and the topics' labels. The conversations and the cases themselves stay unseen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LongEval:
    """Frames with slots in braces; empty lists where the data folder has no LongEval."""

    line_introductions: list[str]
    line_questions: list[str]  # with {name}
    adjectives: list[str]
    nouns: list[str]
    topic_introductions: list[str]  # with {count} and {which}
    topic_closings: list[str]  # with {label}
    topic_questions: list[str]  # with {which}
    labels: list[str]


@cache
def read(data: Path) -> LongEval:
    lines = list(_cases(data / "longeval" / "lines"))
    topics = list(_cases(data / "longeval" / "topics"))
    names = {name for case in lines for name in re.findall(r"^line (\S+): ", case["prompt"], re.M)}
    return LongEval(
        line_introductions=_distinct(case["prompt"].split("\nline ")[0] for case in lines),
        line_questions=_distinct(question for case in lines for question in _line_questions(case)),
        adjectives=_distinct(name.split("-")[0] for name in names),
        nouns=_distinct(name.split("-")[-1] for name in names),
        topic_introductions=_distinct(_topic_introduction(case) for case in topics),
        topic_closings=_distinct(closing for case in topics for closing in _topic_closings(case)),
        topic_questions=_distinct(_which(case["prompt"].rpartition("next topic.")[2]) for case in topics),
        labels=_distinct(label for case in topics for label in case["topics"]),
    )


def _cases(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.jsonl")):
        yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def _line_questions(case: dict[str, Any]) -> Iterator[str]:
    """As written, with the space at its end that is a token of its own, and without it."""
    after = case["prompt"].rpartition("REGISTER_CONTENT is <")[2]
    question = after.partition(">")[2].replace(case["random_idx"][0], "{name}")
    yield from (question, question.rstrip())


def _topic_introduction(case: dict[str, Any]) -> str:
    before = case["prompt"].partition(" USER: I would like")[0]
    return _which(re.sub(r"\d+", "{count}", before))


def _topic_closings(case: dict[str, Any]) -> Iterator[str]:
    for closing in re.findall(r" \n USER: Great, this is the end of our discussion.*?next topic\.", case["prompt"]):
        for label in case["topics"]:
            framed = re.sub(re.escape(label), "{label}", closing, flags=re.I)
            if framed != closing:
                yield framed
                break


def _which(text: str) -> str:
    return text.replace("the first topic", "the {which} topic")


def _distinct(texts: Any) -> list[str]:
    return sorted(set(texts))
