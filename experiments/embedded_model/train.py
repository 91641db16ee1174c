"""Trains the embedded model on one GPU, or slowly on a CPU.

    python -m experiments.embedded_model.train --data data --out runs/embedded --minutes 9

The same command again goes on where the last one stopped, with the same data and the same schedule. At times and at the end
held-out accuracy is printed; OUT/export then holds a model that plain transformers loads.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tokenizers import Tokenizer
from transformers import T5ForConditionalGeneration

from experiments._lib import t5_training, wordings
from experiments._lib.batches import Example, collate
from experiments._lib.command import main, option
from experiments._lib.t5_examples import in_filler, in_prose
from experiments._lib.t5_training import LONGEST, Exam, Material, Recipe
from experiments.embedded_model.data import Stock, learn_vocabulary, read_stock
from experiments.embedded_model.examples import SOURCES, batch, line_in, official_lines, official_topics, topic_in
from lengthwise.tasks import TASKS

RECIPE = Recipe(
    sizes={
        "d_model": 256,
        "d_kv": 48,
        "num_heads": 4,
        "d_ff": 1024,
        "num_layers": 4,
        "num_decoder_layers": 2,
        "feed_forward_proj": "relu",
    },
    peak=1e-3,
    warm_up=500,
    sources=SOURCES,
    continued=("text",),
)


# The one that ships, and the first, which is harder to put out of step (docs/log.md)
SIZES: dict[str, dict[str, int]] = {"shipped": {}, "first": {"num_layers": 6, "d_kv": 64}}


@dataclass(frozen=True, kw_only=True)
class Options(t5_training.Options):
    steps: int = option(12000, "in all; the learning rate falls over them")
    batch: int = option(256, "examples of a step; with half of them and 5000 steps a run takes a sixth of the time")
    curriculum: float = option(0.5, "share of the steps after which records are as long and as confusing as they get")
    size: str = option("shipped", "of the model: 4 layers of 4 heads of 48, or 6 of 4 of 64", choices=tuple(SIZES))
    tests_wording: bool = option(True, "leave out the wordings that evaluation asks in, LongEval's among them")

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", {**SIZES[self.size], **self.sizes})

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "tests_wording": self.tests_wording}


MAKERS: dict[str, Callable[[Stock, random.Random, int], Example]] = {
    "passkey filler": in_filler,
    "passkey prose": in_prose,
    "line": lambda stock, drawn, length: line_in(stock, "line", wordings.LINES[0], drawn, length),
    "line official": lambda stock, drawn, length: line_in(stock, "line official", official_lines(stock, drawn), drawn, length),
    "topic": lambda stock, drawn, length: topic_in(stock, "topic", wordings.TOPICS[0], drawn, length),
    "topic official": lambda stock, drawn, length: topic_in(stock, "topic official", official_topics(stock), drawn, length),
}


def train(options: Options) -> T5ForConditionalGeneration:
    learn = partial(learn_vocabulary, options.data, options.vocabulary)
    return t5_training.train(RECIPE, options, learn, partial(read, options))


def read(options: Options, tokenizer: Tokenizer) -> Material:
    stock, unseen = (read_stock(options.data, tokenizer, train, options.tests_wording) for train in (True, False))
    numbered = [random.Random(f"evaluation text 1 {at}") for at in range(options.samples)]
    texts = [unseen.continued("text", unseen.books.texts, randomness, LONGEST, 64) for randomness in numbered]
    passages = collate(texts, SOURCES, 128, 32)
    steps = partial(batch, stock, options.batch, options.curriculum * options.steps, options.seed)
    return Material(steps, exams(unseen, options.samples), passages.inputs, passages.labels)


def exams(unseen: Stock, samples: int) -> dict[str, Exam]:
    """The same questions at every call; official layouts only where the data folder has them."""
    asked = {}
    for name in (name for name in MAKERS if unseen.official.labels or "official" not in name):
        cases = [MAKERS[name](unseen, random.Random(f"evaluation {name} 1 {at}"), LONGEST) for at in range(samples)]
        scores = [partial(score, case) for case in cases]
        asked[name] = Exam([case.tokens for case in cases], scores, max(len(case.target) for case in cases) + 4)
    return asked


def score(case: Example, answer: str) -> float:
    return TASKS[case.source.split()[0]].score(answer, case.answer)


if __name__ == "__main__":
    sys.exit(main(Options, train, __doc__))
