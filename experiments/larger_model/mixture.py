"""The stream of training batches: which source and which length, decided by the step's own seed.

A batch has two chunks of fixed shapes, so that a compiled model meets no others: short examples of at most 256 tokens, and long
ones, among them a quarter of the batch of the full 512. Early (curriculum.py) it has three chunks of the short shape.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from experiments._lib import novels as books
from experiments._lib import reader
from experiments._lib.batches import IGNORED, Chunk, Stream, padded
from experiments.embedded_model import passkey
from experiments.larger_model import code_tasks, curriculum, reading
from experiments.larger_model.stock import Example, Stock
from lengthwise.errors import require

SHORTEST, SHORT, LONGEST = 60, 256, 512  # tokens
TARGET = 64  # tokens, the most of any target
FULL = 0.25  # share of the examples with as many tokens as there may be
EARLY_CHUNKS = 3
Maker = Callable[[Stock, random.Random, int], Example]
OverDocuments = Callable[[Stock, random.Random, int, int], Example]


def novel(stock: Stock, randomness: random.Random, length: int) -> Example:
    """Prefix language modelling: the encoder reads a passage, the decoder goes on; no `</s>`, for the text does not end."""
    target = randomness.randint(32, TARGET)
    return _continued("text", stock, stock.books.passage(randomness, length - 1 + target), length - 1)


def prose(stock: Stock, randomness: random.Random, length: int) -> Example:
    target = randomness.randint(32, TARGET)
    return _continued("prose of code", stock, books.drawn([stock.prose], randomness, length - 1 + target), length - 1)


def _continued(source: str, stock: Stock, passage: list[int], prefix: int) -> Example:
    return Example(source, [*passage[:prefix], stock.pieces.eos], passage[prefix:])


# What these go on with cannot be known beforehand, as an answer can
CONTINUED: dict[str, Maker] = {"text": novel, "prose of code": prose, "code completion": code_tasks.completion}
FOUND: dict[str, Maker] = {"code key": code_tasks.key, "passkey prose": passkey.in_prose}
OVER_DOCUMENTS: dict[str, OverDocuments] = {
    "made-up qa": reading.made_up_question,
    "nq": reading.natural_question,
    "cloze": reading.cloze_question,
}
SOURCES = (*CONTINUED, *FOUND, *OVER_DOCUMENTS)
EARLY = dict(zip(SOURCES, (0.10, 0.00, 0.10, 0.20, 0.18, 0.30, 0.04, 0.08), strict=True))
WEIGHTS = dict(zip(SOURCES, (0.22, 0.05, 0.19, 0.12, 0.08, 0.18, 0.11, 0.05), strict=True))


@dataclass(frozen=True)
class Plan:
    """What a step's batch depends on besides its number."""

    seed: int = 0
    batch: int = 256
    steps: int = 1_000_000
    short: float = 0.375  # share of the short examples
    curriculum: int = 2000  # steps of short inputs; over as many more the shares go from `early` to `weights`
    early: dict[str, float] = field(default_factory=lambda: dict(EARLY))
    weights: dict[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    encoder: float = 0.5  # weight of the encoder's own answer
    binding: float = 0.5  # weight of the names that answers in made-up documents must know

    def __post_init__(self) -> None:
        require(self.curriculum >= 0, f"--curriculum must be 0 or more steps, not {self.curriculum}")
        require(
            not self.curriculum or round(self.short * self.batch) > 0,
            f"--short {self.short} of --batch {self.batch} leaves no short example for --curriculum {self.curriculum}; "
            "give more, or --curriculum 0",
        )


def batch(stock: Stock, plan: Plan, step: int) -> list[Chunk]:
    randomness = random.Random(f"{plan.seed} {step}")
    stage = curriculum.stage(step, plan.curriculum)
    shares = curriculum.mixed(plan.early, plan.weights, stage.grown)
    short, full = round(plan.short * plan.batch), round(FULL * plan.batch)
    sizes = [(SHORT, short)] * EARLY_CHUNKS if stage.early else [(SHORT, short), (LONGEST, plan.batch - short)]
    chunks = []
    for most, count in sizes:
        examples = []
        for at in range(count):
            length = most if most == LONGEST and at < full else draw_length(randomness, most)
            source = randomness.choices(list(shares), list(shares.values()))[0]
            examples.append(example(stock, source, randomness, length, most, stage.documents))
        if examples:
            chunks.append(collate(examples, most))
    return chunks


def draw_length(randomness: random.Random, most: int) -> int:
    """Long ones are more likely within the short chunk; in the long one all are alike."""
    if most == SHORT:
        return SHORTEST + int((SHORT + 1 - SHORTEST) * randomness.random() ** 0.5)
    return randomness.randint(SHORT + 1, most)


def example(stock: Stock, source: str, randomness: random.Random, length: int, most: int, documents: int) -> Example:
    """Of about so many tokens: a question may need more than a short length, which does no harm, but never more than `most`."""
    while True:
        made = make(stock, source, randomness, length, documents)
        if len(made.tokens) <= most and 0 < len(made.target) <= TARGET:
            return made


def make(stock: Stock, source: str, randomness: random.Random, length: int, documents: int) -> Example:
    if source in OVER_DOCUMENTS:
        return OVER_DOCUMENTS[source](stock, randomness, length, documents)
    return {**CONTINUED, **FOUND}[source](stock, randomness, length)


def collate(examples: list[Example], most: int) -> Chunk:
    return Chunk(
        inputs=padded([one.tokens for one in examples], most, 0),
        labels=padded([one.target for one in examples], TARGET, IGNORED),
        sources=torch.tensor([SOURCES.index(one.source) for one in examples], dtype=torch.int16),
        bound=reader.rows(one.bound for one in examples),
    )


def stream(stock: Stock, plan: Plan, start: int) -> Stream:
    return Stream(partial(batch, stock, plan), start, plan.steps)
