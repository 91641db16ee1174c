"""Held-out accuracy a task, by greedy generation at full length, and perplexity of held-out novels."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from experiments._lib import t5_training
from experiments.embedded_model import lines, passkey, topics
from experiments.embedded_model.example import LONGEST, Example, Stock
from experiments.embedded_model.mixture import collate, continuation
from lengthwise.tasks import TASKS

Maker = Callable[[Stock, random.Random, int], Example]
MAKERS: dict[str, Maker] = {
    "passkey filler": passkey.in_filler,
    "passkey prose": passkey.in_prose,
    "line": lines.ours,
    "line official": lines.official,
    "topic": topics.ours,
    "topic official": topics.in_official_layout,
}
PIECE = 32  # examples generated for at once


def cases(stock: Stock, samples: int, seed: int = 1) -> dict[str, list[Example]]:
    """The same examples at every call; official layouts only where the data folder has them."""
    wanted = {name: make for name, make in MAKERS.items() if stock.official.labels or "official" not in name}
    return {name: [_case(stock, name, make, seed, at) for at in range(samples)] for name, make in wanted.items()}


def _case(stock: Stock, name: str, make: Maker, seed: int, at: int) -> Example:
    made = make(stock, random.Random(f"evaluation {name} {seed} {at}"), LONGEST)
    assert len(made.tokens) <= LONGEST, f"{name} case {at} takes {len(made.tokens)} tokens"
    return made


def texts(stock: Stock, samples: int, seed: int = 1) -> list[Example]:
    return [continuation(stock, random.Random(f"evaluation text {seed} {at}"), LONGEST, 64) for at in range(samples)]


def accuracy(model: Any, tokenizer: Any, examples: list[Example]) -> float:
    """Percent right."""
    right = 0.0
    for at in range(0, len(examples), PIECE):
        some = examples[at : at + PIECE]
        inputs, *_ = collate(some).to(model.device)
        longest = max(len(one.target) for one in some) + 4
        said = tokenizer.decode_batch(t5_training.answers(model, inputs, longest), skip_special_tokens=True)
        right += sum(score(one, answer) for one, answer in zip(some, said, strict=True))
    return 100 * right / len(examples)


def score(one: Example, answer: str) -> float:
    return TASKS[one.source.split()[0]].score(answer, one.answer)


def perplexity(model: Any, examples: list[Example]) -> float:
    pieces = (collate(examples[at : at + PIECE]).to(model.device) for at in range(0, len(examples), PIECE))
    return t5_training.perplexity(model, ((inputs, labels) for inputs, labels, *_ in pieces))
