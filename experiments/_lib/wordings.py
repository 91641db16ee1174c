"""Wordings of the tasks in many forms, so that a model learns the task and not one sentence.

The package's own wordings stand first in each list, ours in wordings.json. Slots are in braces.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from lengthwise.tasks import line, passkey, topic

_OURS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
# Passkey: {thing} is what is hidden, {key} its number
THINGS = tuple(_OURS["things"])
PASSKEY_INTRODUCTIONS = (passkey.INTRODUCTION, *_OURS["passkey_introductions"])
NEEDLES = tuple(_OURS["needles"])
PASSKEY_QUESTIONS = tuple(_OURS["passkey_questions"])
JUNK = tuple(_OURS["junk"])  # sentences that repeat around a number


@dataclass(frozen=True)
class Lines:
    """One way to write a record of lines: `entry` and `question` with {name} and {number}."""

    introduction: str
    entry: str
    question: str


ENTRY = "\nline {name}: REGISTER_CONTENT is <{number}>"
LINES = (
    Lines(line.INTRODUCTION, ENTRY, "\nWhich number is on line {name}? The number of line {name} is"),
    *(Lines(*parts) for parts in _OURS["lines"]),
)
SHORT_LINES = LINES[-2:]
OTHER_LINES = tuple(layout for layout in LINES[1:] if layout.entry != ENTRY)  # none of the task's or LongEval's


@dataclass(frozen=True)
class Topics:
    """One way to write a talk on several topics: `opening`, `closing` with {label}, a turn with {sentence}."""

    introduction: str  # with {count} and {which}
    opening: str
    turns: tuple[str, ...]
    closings: tuple[str, ...]
    question: str  # with {which}


TOPICS = (
    Topics(topic.INTRODUCTION, f"\n{topic.OPENING}", tuple(f"\n{turn}" for turn in topic.TURNS), ("",), f"\n{topic.QUESTION}"),
    *(Topics(start, opening, tuple(turns), tuple(ends), asked) for start, opening, turns, ends, asked in _OURS["topics"]),
)
LONGEVAL_OPENING = "USER: I would like to discuss the topic of {label}."
LONGEVAL_TURNS = (" \n ASSISTANT: {sentence}", " \n USER: {sentence}")
CHAT = tuple(_OURS["chat"])
ASPECTS = (*topic.ASPECTS, *_OURS["aspects"])
SUBJECTS = topic.SUBJECTS


def labels() -> list[str]:
    """Every aspect of every subject, or of two different ones."""
    return sorted({form.format(a=a, b=b) for form in ASPECTS for a in SUBJECTS for b in SUBJECTS if a != b})


def everything() -> list[str]:
    """All fixed text of the tasks, for the vocabulary."""
    passkeys = [*PASSKEY_INTRODUCTIONS, *NEEDLES, *PASSKEY_QUESTIONS, *THINGS, *JUNK]
    lines = [part for form in LINES for part in (form.introduction, form.entry, form.question)]
    topics = [part for one in TOPICS for part in (one.introduction, one.opening, *one.turns, *one.closings, one.question)]
    return [*passkeys, *lines, *topics, LONGEVAL_OPENING, *LONGEVAL_TURNS, *CHAT, *ASPECTS, *SUBJECTS]
