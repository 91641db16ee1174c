"""What the embedded model is trained on: novels, our wordings, LongEval's frames, and a vocabulary of 4,096 tokens.

LongEval's layouts and words are read from its official cases while training and written nowhere: only the frame of a case is
used (introduction, the fixed sentences around each entry, question), the words that name lines, and the topics' labels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers

from experiments._lib import bpe, held_out, t5_examples, wordings
from experiments._lib import novels as books
from experiments._lib.bpe import Pieces
from lengthwise.common.text import shipped_prose
from lengthwise.tasks import line

# GPT-2's splitting rule with every digit alone; the space before a number stays alone, too
SPLIT = re.compile(r"\d|'(?:[stmd]|re|ve|ll)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?=\d)|\s+(?!\S)|\s+")


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
def read_longeval(data: Path) -> LongEval:
    lines = list(_longeval_cases(data / "longeval" / "lines"))
    topics = list(_longeval_cases(data / "longeval" / "topics"))
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


def _longeval_cases(folder: Path) -> Iterator[dict[str, Any]]:
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


@dataclass(frozen=True)
class Words:
    """Words that make the names of lines, one of the first and one of the second."""

    first: list[str]
    second: list[str]

    def part(self, train: bool) -> Words:
        """Those that training may use, or the others."""
        first, second = ([word for word in side if held_out.word(word) != train] for side in (self.first, self.second))
        return Words(first, second)


@dataclass(frozen=True, kw_only=True)
class Stock(t5_examples.Stock):
    """Everything examples are made of, for training or, with what training never sees, for evaluation."""

    official: LongEval
    names: list[Words]  # the package's lists, then LongEval's where they are at hand
    labels: list[str]
    official_labels: list[str]  # those of LongEval, written as within a sentence

    @cached_property
    def book_words(self) -> list[str]:
        """Words of the novels that may name lines, so that names are not bound to two lists."""
        return [word for word in self.books.words if held_out.word(word) != self.train]

    @cached_property
    def plain_names(self) -> Words:
        """Words that are one token each, where they stand in a name: what matching is learnt on first."""
        tokens = self.pieces.tokens
        first = [word for word in self.book_words if len(tokens(f" {word}")) == 1]
        return Words(first, [word for word in self.book_words if len(tokens(word)) == 1])


def read_stock(data: Path, tokenizer: Any, train: bool, tests_wording: bool = True) -> Stock:
    paths = books.training(data) if train else books.evaluation(data)
    official = read_longeval(data)
    lists = [Words(line.ADJECTIVES, line.NOUNS), Words(official.adjectives, official.nouns)]
    pieces = Pieces(tokenizer, SPLIT)
    return Stock(
        pieces=pieces,
        books=books.read(paths, pieces),
        official=official,
        names=[words.part(train) for words in lists if words.first],
        labels=[label for label in wordings.labels() if held_out.label(label) != train],
        official_labels=[label[0].lower() + label[1:] for label in official.labels if held_out.label(label) != train],
        train=train,
        tests_wording=tests_wording,
    )


VOCABULARY = 4096
# Enough for the wordings to become whole tokens, few enough to leave room for prose
TIMES = 200


def learn_vocabulary(data: Path, size: int | None = None) -> Tokenizer:
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    return bpe.learn(_vocabulary_texts(data), size or VOCABULARY, split)


def _vocabulary_texts(data: Path) -> Iterator[str]:
    for path in books.training(data):
        text = path.read_text(encoding="utf-8")
        yield from (text, books.unwrapped(text))
    yield shipped_prose()
    official = read_longeval(data)
    frames = [
        *official.line_introductions,
        *official.line_questions,
        *official.topic_introductions,
        *official.topic_closings,
        *official.topic_questions,
        *(label for label in official.labels if not held_out.label(label)),
    ]
    for text in [*wordings.everything(), *frames]:
        yield from [re.sub(r"\{\w+\}", "", text)] * TIMES
    # A first word follows a space, a second one a hyphen
    names = [f" {word}" for word in sorted({*line.ADJECTIVES, *official.adjectives}) if not held_out.word(word)]
    names += [word for word in sorted({*line.NOUNS, *official.nouns}) if not held_out.word(word)]
    for word in names:
        yield from [word] * 5
