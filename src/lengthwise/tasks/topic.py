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
from lengthwise.tasks.material.fit_length import added_tokens, fit_to_length
from lengthwise.tasks.sample import Sample, check_depth, endless_from_anywhere, sentences, token_count

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
SHORTEST = 40  # tokens that the last topic has room for behind its opening
ANSWER_TOKENS = 32
__all__ = ["ANSWER_TOKENS", "LABELS", "OPENING", "QUESTION", "TURNS", "read", "samples", "score"]


def samples(
    tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None, labels: Sequence[str] | None = None
) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; the first topic is asked for, or the one that stands at `depth`.

    No topic comes twice. Where a long prompt would need more than there are `labels`, every topic is talked about longer.
    """
    check_depth(depth)
    labels = list(dict.fromkeys(LABELS if labels is None else labels))
    require(bool(labels), "there are no topic labels to choose from; give at least one")
    prose = [" ".join(sentence.split()) for sentence in sentences(shipped_prose())]
    makers = (random.Random(f"topic {seed} {index}") for index in range(n))
    return [_sample(tokenizer, length, depth, labels, prose, randomness) for randomness in makers]


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
    said = iter(endless_from_anywhere(prose, randomness))
    labels = randomness.sample(labels, len(labels))
    room = length - token_count(tokenizer, "\n".join([INTRODUCTION, QUESTION.format(which=ORDINALS[0])]))
    talks = _talks(tokenizer, room, labels, said, randomness)
    # Talks counted alone may come out longer together
    while len(talks) > 1 and token_count(tokenizer, "\n".join([INTRODUCTION, *talks, QUESTION])) > length:
        talks = [*talks[:-2], OPENING.format(label=labels[len(talks) - 2])]
    asked = round((depth or 0.0) * (len(talks) - 1))
    question = QUESTION.format(which=_ordinal(asked, len(talks)))

    def prompt_of(turns: list[str]) -> str:
        return "\n".join([INTRODUCTION, *talks, *turns, question])

    prompt = prompt_of(fit_to_length(tokenizer, length, _turns(said), prompt_of, glue="\n", cut=True))
    return Sample(prompt, labels[asked], token_count(tokenizer, prompt), asked / max(1, len(talks) - 1), question)


def _talks(tokenizer: Any, room: int, labels: list[str], said: Iterator[str], randomness: random.Random) -> list[str]:
    """One talk a topic, as many as the room holds; the last is only opened, what is left of the room is its own."""
    openings = [OPENING.format(label=label) for label in labels]
    share = room / len(labels)
    talks: list[str] = []
    for opening, following in itertools.pairwise(openings):
        talk = _talk(tokenizer, opening, max(randomness.uniform(*TALK), share), said)
        room -= added_tokens(tokenizer, talk, "\n")
        if room < added_tokens(tokenizer, following, "\n") + SHORTEST:
            return [*talks, opening]
        talks.append(talk)
    return [*talks, openings[-1]]


def _talk(tokenizer: Any, opening: str, goal: float, said: Iterator[str]) -> str:
    """An opening and at least one turn, about as many as make the goal."""
    talk = opening
    for turn in _turns(said):
        longer = f"{talk}\n{turn}"
        enough = abs(added_tokens(tokenizer, longer, "\n") - goal) >= abs(added_tokens(tokenizer, talk, "\n") - goal)
        if enough and talk != opening:
            break
        talk = longer
    return talk


def _turns(said: Iterable[str]) -> Iterator[str]:
    """Who speaks changes from turn to turn; the opening was USER's."""
    for at, sentence in enumerate(said):
        yield TURNS[at % len(TURNS)].format(sentence=sentence)


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
