"""BABILong: the facts of a bAbI story in their order between the sentences of a book, asked about at the end.

The task is Kuratov et al.'s (2024; Output Alignment, Tables 6 and 7), the wording is ours. Scored as theirs: of the task's
labels, those found in the first sentence of the answer, less those of the question, must be the target and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from lengthwise.common.text import shipped_prose
from lengthwise.errors import require
from lengthwise.tasks.material import case_files
from lengthwise.tasks.material.babi import Story
from lengthwise.tasks.material.fit_length import by_word, fit_to_length
from lengthwise.tasks.material.stories import KINDS, story
from lengthwise.tasks.material.token_counts import token_count
from lengthwise.tasks.sample import Sample, draws, endless_from_anywhere, sentences, with_inserted

INTRODUCTION = "Facts are hidden in the text below. Remember them; you will be asked about them."
QUESTION = "Question: {question} Answer in one word:"
ANSWER_TOKENS = 16
DRAWS = 100  # stories that may be tried at a length that is too short for most
__all__ = ["ANSWER_TOKENS", "INTRODUCTION", "QUESTION", "read", "samples", "score"]


def samples(
    tokenizer: Any,
    length: int,
    n: int,
    seed: int,
    depth: float | None = None,
    kind: str = "qa1",
    stories: Sequence[Story] | None = None,
    filler: Sequence[str] | None = None,
) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; the facts are spread evenly at random, or all stand at `depth`.

    `stories` are drawn from, such as those of a bAbI file (`babi.read_stories`); without them stories of the `kind` are made.
    `filler` are the sentences around the facts, in their order; without them the package's prose. A story that the length has
    no room for is drawn again.
    """
    require(kind in KINDS, f"no kind of story {kind!r}; the kinds are {', '.join(KINDS)}")
    require(stories is None or bool(stories), "there are no stories to ask about; give at least one")
    prose = [" ".join(sentence.split()) for sentence in (sentences(shipped_prose()) if filler is None else filler)]
    prose = [sentence for sentence in prose if sentence]
    require(bool(prose), "there are no sentences to hide the facts in; give at least one")
    made = []
    for randomness in draws(f"babilong {kind}", seed, n, depth):
        hidden = _hidden(
            tokenizer, length, depth, randomness, lambda draw: draw.choice(stories) if stories else story(kind, draw)
        )
        fitted = fit_to_length(tokenizer, length, endless_from_anywhere(prose, randomness), hidden.prompt, cut=by_word)
        target = hidden.story.answer
        made.append(Sample(fitted.prompt, target, fitted.tokens, hidden.depth, hidden.question, hidden.labels))
    return made


def score(prediction: str, target: str, labels: Sequence[str] = ()) -> float:
    """1 where the first sentence names the target and no other of the `labels`, the answers to choose from."""
    sentence = prediction.lower().split(".", 1)[0]
    named = {label.lower() for label in (*labels, target) if label.lower() in sentence}
    return float(named == {target.lower()})


def read(tokenizer: Any, path: Path) -> list[Sample]:
    """Read cases with `prompt` and `target`, and `labels` where the answers to choose from are known."""
    return [_with_labels(case_files.plain(tokenizer, case), case) for case in case_files.cases(Path(path))]


@dataclass(frozen=True)
class _Hidden:
    """A story and where its facts stand in a text, from 0 to 1."""

    story: Story
    places: tuple[float, ...]

    @property
    def question(self) -> str:
        return QUESTION.format(question=self.story.question)

    @property
    def labels(self) -> tuple[str, ...]:
        return _not_in(self.story.question, self.story.labels)

    @property
    def depth(self) -> float:
        """The mean place of the facts that the answer follows from."""
        return fmean(self.places[fact] for fact in self.story.support)

    def prompt(self, around: list[str]) -> str:
        facts = list(zip(self.places, self.story.facts, strict=True))
        return " ".join([INTRODUCTION, *with_inserted(around, facts)]) + "\n" + self.question


def _hidden(
    tokenizer: Any, length: int, depth: float | None, randomness: random.Random, draw: Callable[[random.Random], Story]
) -> _Hidden:
    """A story that fits into the length; if none of many does, the last one, whose prompt is then refused as too long."""
    for _ in range(DRAWS):
        drawn = draw(randomness)
        places = [randomness.random() if depth is None else depth for _ in drawn.facts]
        hidden = _Hidden(drawn, tuple(sorted(places)))
        if token_count(tokenizer, hidden.prompt([])) <= length:
            break
    return hidden


def _with_labels(sample: Sample, case: case_files.Case) -> Sample:
    if "labels" not in case.fields:
        return sample
    given = case.get("labels", list, "a list of the answers to choose from")
    labels = [label.strip() if isinstance(label, str) else "" for label in given]
    words = all(labels)
    require(
        words and sample.target in labels, f"{case.place}: 'labels' should be texts, the target {sample.target!r} among them"
    )
    return replace(sample, labels=_not_in(sample.question, labels))


def _not_in(question: str, labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(label for label in labels if label.lower() not in question.lower())
