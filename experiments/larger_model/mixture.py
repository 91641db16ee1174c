"""The stream of training batches: which source and which length, decided by the step's own seed.

A batch has two chunks of fixed shapes, so that a compiled model meets no others: short examples of at most 256 tokens, and long
ones, among them a quarter of the batch of the full 512.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from experiments.common.batches import IGNORED, Chunk, Stream, padded
from experiments.embedded_model import books, passkey
from experiments.larger_model import code_tasks, reading
from experiments.larger_model.stock import Example, Stock

SHORTEST, SHORT, LONGEST = 60, 256, 512  # tokens
TARGET = 64  # tokens, the most of any target
FULL = 0.25  # share of the examples with as many tokens as there may be
Maker = Callable[[Stock, random.Random, int], Example]


def novel(stock: Stock, randomness: random.Random, length: int) -> Example:
    """Prefix language modelling: the encoder reads a passage, the decoder goes on; no `</s>`, for the text does not end."""
    target = randomness.randint(32, TARGET)
    return _continued("text", stock, stock.books.passage(randomness, length - 1 + target), length - 1)


def prose(stock: Stock, randomness: random.Random, length: int) -> Example:
    target = randomness.randint(32, TARGET)
    return _continued("prose of code", stock, books.drawn([stock.prose], randomness, length - 1 + target), length - 1)


def _continued(source: str, stock: Stock, passage: list[int], prefix: int) -> Example:
    return Example(source, [*passage[:prefix], stock.pieces.eos], passage[prefix:])


MAKERS: dict[str, Maker] = {
    "text": novel,
    "prose of code": prose,
    "code completion": code_tasks.completion,
    "code key": code_tasks.key,
    "made-up qa": reading.made_up_question,
    "nq": reading.natural_question,
    "cloze": reading.cloze_question,
    "passkey prose": passkey.in_prose,
}
SHARES = (0.25, 0.05, 0.22, 0.12, 0.14, 0.12, 0.05, 0.05)
WEIGHTS = dict(zip(MAKERS, SHARES, strict=True))
SOURCES = tuple(WEIGHTS)


@dataclass(frozen=True)
class Plan:
    """What a step's batch depends on besides its number."""

    seed: int = 0
    batch: int = 256
    steps: int = 1_000_000
    short: float = 0.375  # share of the short examples
    weights: dict[str, float] = field(default_factory=lambda: dict(WEIGHTS))


def batch(stock: Stock, plan: Plan, step: int) -> list[Chunk]:
    randomness = random.Random(f"{plan.seed} {step}")
    short, full = round(plan.short * plan.batch), round(FULL * plan.batch)
    sizes = {SHORT: short, LONGEST: plan.batch - short}
    chunks = []
    for most, count in sizes.items():
        examples = []
        for at in range(count):
            length = most if most == LONGEST and at < full else draw_length(randomness, most)
            examples.append(example(stock, plan, randomness, length, most))
        if examples:
            chunks.append(collate(examples, most))
    return chunks


def draw_length(randomness: random.Random, most: int) -> int:
    """Long ones are more likely within the short chunk; in the long one all are alike."""
    if most == SHORT:
        return SHORTEST + int((SHORT + 1 - SHORTEST) * randomness.random() ** 0.5)
    return randomness.randint(SHORT + 1, most)


def example(stock: Stock, plan: Plan, randomness: random.Random, length: int, most: int) -> Example:
    """Of about so many tokens: a question may need more than a short length, which does no harm, but never more than `most`."""
    source = randomness.choices(list(plan.weights), list(plan.weights.values()))[0]
    while True:
        made = MAKERS[source](stock, randomness, length)
        if len(made.tokens) <= most and 0 < len(made.target) <= TARGET:
            return made


def collate(examples: list[Example], most: int) -> Chunk:
    return Chunk(
        inputs=padded([one.tokens for one in examples], most, 0),
        labels=padded([one.target for one in examples], TARGET, IGNORED),
        sources=torch.tensor([SOURCES.index(one.source) for one in examples], dtype=torch.int16),
    )


def stream(stock: Stock, plan: Plan, start: int) -> Stream:
    return Stream(partial(batch, stock, plan), start, plan.steps)
