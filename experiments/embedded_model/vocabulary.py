"""A BPE vocabulary of 4,096 tokens: bytes at the bottom, so nothing is unknown, and one token a digit.

Learnt from the novels of the training set, the package's prose and the wordings of the tasks; of the words that name lines
only the half that training may use, so that no token belongs to held-out words alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, pre_tokenizers

from experiments._lib import bpe, held_out
from experiments._lib import novels as books
from experiments.embedded_model import longeval, wordings
from lengthwise.common.text import shipped_prose
from lengthwise.tasks import line

SIZE = 4096
# Enough for the wordings to become whole tokens, few enough to leave room for prose
TIMES = 200


def learn(data: Path, size: int = SIZE) -> Tokenizer:
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    return bpe.learn(_texts(data), size, split)


def _texts(data: Path) -> Iterator[str]:
    for path in books.training(data):
        text = path.read_text(encoding="utf-8")
        yield from (text, books.unwrapped(text))
    yield shipped_prose()
    official = longeval.read(data)
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
