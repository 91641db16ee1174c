"""The stream of training batches: which task, which length, how many lines, decided by the step's own seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial

import torch

from experiments._lib import reader
from experiments._lib.batches import IGNORED, Chunk, Stream, padded
from experiments.embedded_model import lines, passkey, topics
from experiments.embedded_model.example import LONGEST, Example, Stock
from experiments.embedded_model.lines import Difficulty

SHORTEST = 30
EARLY = 320  # the longest input while records are short
FEW_LINES, MOST_LINES = 10, 40  # a record to learn on; more than ever fit
WEIGHTS = {"passkey filler": 0.05, "passkey prose": 0.12, "line": 0.48, "topic": 0.20, "text": 0.15}
SOURCES = tuple(WEIGHTS)


@dataclass(frozen=True)
class Plan:
    """What a step's batch depends on besides its number."""

    seed: int = 0
    batch: int = 256
    chunks: int = 2  # parts of a batch, of like lengths, each padded by itself
    steps: int = 20000
    curriculum: float = 0.5  # share of the steps after which records are as long and as confusing as they get
    many: float = 0.3  # share of the records of which several lines are asked for
    encoder: float = 0.5  # weight of the encoder's own answer
    binding: float = 0.5  # weight of the names that the digits of lines must know
    weights: dict[str, float] = field(default_factory=lambda: dict(WEIGHTS))


def example(stock: Stock, plan: Plan, randomness: random.Random, step: int) -> Example:
    source = randomness.choices(list(plan.weights), list(plan.weights.values()))[0]
    hard = difficulty(plan, step)
    while True:
        length = draw_length(randomness, EARLY + round(hard.variety * (LONGEST - EARLY)))
        made = _make(stock, source, randomness, length, hard)
        # An introduction may be longer than a short length, which does no harm; only the longest length is a law
        if len(made.tokens) <= LONGEST:
            return made


def draw_length(randomness: random.Random, longest: int = LONGEST) -> int:
    """One in four has the full length; the others grow more likely with length."""
    if randomness.random() < 0.25:
        return longest
    return SHORTEST + int((longest + 1 - SHORTEST) * randomness.random() ** 0.5)


def difficulty(plan: Plan, step: int) -> Difficulty:
    """Few lines of plain names until matching is learnt, in the first half of the curriculum; then more of everything."""
    done = min(1.0, step / max(1.0, plan.curriculum * plan.steps))
    grown = max(0.0, 2 * done - 1)
    few = min(FEW_LINES, 3 + int(40 * done))
    return Difficulty(few + round(grown * (MOST_LINES - few)), grown, plan.many)


def _make(stock: Stock, source: str, randomness: random.Random, length: int, hard: Difficulty) -> Example:
    match source:
        case "passkey filler":
            return passkey.in_filler(stock, randomness, length)
        case "passkey prose":
            return passkey.in_prose(stock, randomness, length)
        case "line":
            return lines.example(stock, randomness, length, hard)
        case "topic":
            return topics.example(stock, randomness, length)
        case _:
            return continuation(stock, randomness, length, randomness.randint(32, 64))


def continuation(stock: Stock, randomness: random.Random, length: int, target: int) -> Example:
    """Prefix language modelling: the encoder reads a passage, the decoder goes on; no `</s>`, for the text does not end."""
    passage = stock.books.passage(randomness, length - 1 + target)
    return Example("text", [*passage[: length - 1], stock.pieces.eos], passage[length - 1 :], "", "")


def batch(stock: Stock, plan: Plan, step: int) -> list[Chunk]:
    randomness = random.Random(f"{plan.seed} {step}")
    examples = sorted((example(stock, plan, randomness, step) for _ in range(plan.batch)), key=lambda one: len(one.tokens))
    size = -(-plan.batch // plan.chunks)
    return [collate(examples[at : at + size]) for at in range(0, plan.batch, size)]


def collate(examples: list[Example]) -> Chunk:
    """Inputs padded to a multiple of 128, labels to one of 32."""
    # Evaluation has names of its own, which are not counted
    places = [SOURCES.index(one.source) if one.source in SOURCES else -1 for one in examples]
    return Chunk(
        inputs=padded([one.tokens for one in examples], 128, 0),
        labels=padded([one.target for one in examples], 32, IGNORED),
        sources=torch.tensor(places, dtype=torch.int16),
        bound=reader.rows(one.bound for one in examples),
    )


def stream(stock: Stock, plan: Plan, start: int) -> Stream:
    return Stream(partial(batch, stock, plan), start, plan.steps)
