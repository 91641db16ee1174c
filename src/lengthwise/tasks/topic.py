"""Topic: a conversation that goes from topic to topic; the first is asked for at the end.

The task is LongEval's (Li et al. 2023; Chi et al., Table 4), wording and labels are ours. Scored by whether the answer contains
the label, case and punctuation removed.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lengthwise.common.text import shipped_prose
from lengthwise.errors import BadInput, require
from lengthwise.tasks.material import word_lists
from lengthwise.tasks.material.case_files import Case, asked_at, read_as
from lengthwise.tasks.material.fit_length import BLOCK, by_word, fit_to_length, tokens_per_letter
from lengthwise.tasks.sample import Sample, draws, endless_from_anywhere, sentences

INTRODUCTION = (
    "Below is a conversation between USER and ASSISTANT about several topics, one after the other. "
    "USER begins each topic by naming it. Remember the topics in their order."
)
OPENING = "USER: Let us talk about {label}."
TURNS = ("ASSISTANT: {sentence}", "USER: {sentence}")
QUESTION = "What was the {which} topic we talked about? The {which} topic was"
ORDINALS, ASPECTS, SUBJECTS = word_lists("topic", "ordinals", "aspects", "subjects")
LABELS = tuple(aspect.format(a=subject) for aspect in ASPECTS for subject in SUBJECTS)
TALK = (60, 110)  # tokens of one topic's talk, opening included
ANSWER_TOKENS = 32
__all__ = ["ANSWER_TOKENS", "LABELS", "OPENING", "QUESTION", "TURNS", "read", "samples", "score"]


def samples(
    tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None, labels: Sequence[str] | None = None
) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; the first topic is asked for, or the one that stands at `depth`.

    No topic comes twice. Where a long prompt would need more than there are `labels`, every topic is talked about longer.
    """
    labels = list(dict.fromkeys(LABELS if labels is None else labels))
    require(bool(labels), "there are no topic labels to choose from; give at least one")
    prose = [" ".join(sentence.split()) for sentence in sentences(shipped_prose())]
    return [_sample(tokenizer, length, depth, labels, prose, randomness) for randomness in draws("topic", seed, n, depth)]


def score(prediction: str, target: str) -> float:
    label = _bare(target)
    return float(label.strip() != "" and label in _bare(prediction))


def read(tokenizer: Any, path: Path) -> list[Sample]:
    """Read LongEval's official cases: `prompt` and `topics`, of which the first is asked for."""
    return read_as(_longeval, tokenizer, path)


def _longeval(tokenizer: Any, case: Case) -> Sample:
    topics = case.get("topics", list, "the list of topics (or 'target', in a file of your own)")
    require(bool(topics), f"{case.place}: 'topics' is empty")
    return asked_at(tokenizer, case, str(topics[0]), 0.0)


def _sample(
    tokenizer: Any, length: int, depth: float | None, labels: list[str], prose: list[str], randomness: random.Random
) -> Sample:
    talk = iter(endless_from_anywhere(prose, randomness))
    labels = randomness.sample(labels, len(labels))
    letter = tokens_per_letter(tokenizer, [TURNS[0].format(sentence=sentence) for sentence in prose[:BLOCK]], "\n")

    def question_of(turns: list[str]) -> tuple[str, str, float]:
        """The question, its answer, and the answer's place among the topics."""
        topics = [turn.partition("\n")[0] for turn in turns if "\n" in turn] or [OPENING.format(label=labels[0])]
        place = round((depth or 0.0) * (len(topics) - 1))
        label = next(label for label in labels if OPENING.format(label=label) == topics[place])
        return QUESTION.format(which=_ordinal(place, len(topics))), label, place / max(1, len(topics) - 1)

    def prompt_of(turns: list[str]) -> str:
        return "\n".join([INTRODUCTION, *(turns or [OPENING.format(label=labels[0])]), question_of(turns)[0]])

    goals = (max(randomness.uniform(*TALK), length / len(labels)) / letter for _ in labels)
    fitted = fit_to_length(tokenizer, length, _turns(labels, goals, talk), prompt_of, glue="\n", cut=_beginnings)
    question, label, place = question_of(fitted.pieces)
    return Sample(fitted.prompt, label, fitted.tokens, place, question)


def _turns(labels: Sequence[str], goals: Iterable[float], said: Iterator[str]) -> Iterator[str]:
    """Turns topic after topic, each about its goal of letters long, the last one without end.

    A topic's first turn has its opening before it, on a line of its own. Who speaks changes from turn to turn; the opening is
    USER's.
    """
    for label, goal in zip(labels, goals, strict=True):
        letters = 0
        for turn in (form.format(sentence=sentence) for form, sentence in zip(itertools.cycle(TURNS), said, strict=False)):
            yield turn if letters else f"{OPENING.format(label=label)}\n{turn}"
            letters += len(turn) + (0 if letters else len(OPENING.format(label=label)))
            # The next turn would lead further away from the goal
            if label != labels[-1] and letters + len(turn) / 2 > goal:
                break


def _beginnings(turn: str) -> list[str]:
    """The beginnings of a turn that end with a word of it, its opening whole."""
    opening, line, sentence = turn.rpartition("\n")
    return [f"{opening}{line}{beginning}" for beginning in by_word(sentence)[1:]]


def _ordinal(asked: int, topics: int) -> str:
    if 0 < asked == topics - 1:
        return "last"
    if asked >= len(ORDINALS):
        raise BadInput(
            f"topic {asked + 1} of {topics} is not one that people ask for by its number; "
            f"give a depth of 0, of 1, or one among the first {len(ORDINALS)} topics"
        )
    return ORDINALS[asked]


def _bare(text: str) -> str:
    """The text in lower case, without punctuation, a space before and behind every word."""
    words = re.sub(r"[^\w\s]|_", "", text.lower()).split()
    return f" {' '.join(words)} "
