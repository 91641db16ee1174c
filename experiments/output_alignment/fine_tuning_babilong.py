"""BABILong for small models: is the answer that it writes right, and is the right one the likeliest of those to choose from?

A small model's answers are mostly beside the point, so that the second says more: a label's log-likelihood after the prompt is
compared with those of all labels of the task that the question does not name. Prompts leave room for the answer within the
length; they are made once, in OUT/prompts.json, and every run is asked the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from experiments._lib.processes import Once, share_out
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.likelihood import token_nll
from lengthwise.evaluation.sweep.generate import greedy_answers
from lengthwise.models.extend import extend
from lengthwise.tasks import babilong
from lengthwise.tasks.material.babi import read_stories

KINDS = ("qa1", "qa2", "qa3", "qa4", "qa5")
DEPTHS, DEPTH_FACTOR = (0.0, 0.25, 0.5, 0.75), 4  # Table 7, at the paper's four training lengths
FILE = "prompts.json"
Key = tuple[str, int, float | None]  # kind, length in training lengths, depth


@dataclass(frozen=True)
class Question:
    prompt: list[int]  # tokens
    target: str
    labels: list[str]  # to choose from


@dataclass(frozen=True)
class Cell:
    kind: str
    factor: int
    depth: float | None
    questions: list[Question]

    @property
    def chance(self) -> float:
        return fmean(1 / len(one.labels) for one in self.questions)


def keys(kinds: Sequence[str], factors: Sequence[int]) -> list[Key]:
    """Table 6 over all kinds, then Table 7 over the first."""
    by_length: list[Key] = [(kind, factor, None) for factor in factors for kind in kinds]
    return by_length + [(kinds[0], DEPTH_FACTOR, depth) for depth in DEPTHS]


@dataclass(frozen=True)
class Maker:
    """What prompts are made of."""

    tokenizer: Any
    train_length: int
    babi: Path  # folder of bAbI's files
    filler: Sequence[str]  # sentences
    samples: int  # a cell

    def cell(self, key: Key) -> Cell:
        kind, factor, depth = key
        length = factor * self.train_length - babilong.ANSWER_TOKENS
        stories = read_stories(self._file(kind))
        made = babilong.samples(self.tokenizer, length, self.samples, 0, depth, kind, stories, self.filler)
        questions = [
            Question([int(token) for token in self.tokenizer(one.prompt, verbose=False).input_ids], one.target, [*one.labels])
            for one in made
        ]
        return Cell(kind, factor, depth, questions)

    def _file(self, kind: str) -> Path:
        found = sorted(self.babi.glob(f"{kind}_*_test.txt"))
        require(len(found) == 1, f"{self.babi} should hold one file {kind}_*_test.txt of bAbI's, and has {len(found)}")
        return found[0]


def kept_cells(maker: Maker, wanted: Sequence[Key], out: Path) -> list[Cell]:
    """Those in OUT/prompts.json, made by one process for all."""
    file = out / FILE

    def make() -> None:
        write_whole(file, json.dumps([asdict(maker.cell(key)) for key in wanted]) + "\n")

    share_out([Once(out / f".claim-{FILE}", file.exists, make)])
    try:
        return [
            Cell(one["kind"], one["factor"], one["depth"], [Question(**question) for question in one["questions"]])
            for one in json.loads(file.read_text())
        ]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{file} does not hold prompts; remove it, and they are made again") from None


def written(model: Any, tokenizer: Any, cell: Cell, method: str) -> list[int]:
    """1 where what the model writes is right, by BABILong's own rule."""
    with extend(model, method):
        found = greedy_answers(model, tokenizer, [one.prompt for one in cell.questions], babilong.ANSWER_TOKENS)
    pairs = zip(found, cell.questions, strict=True)
    return [int(babilong.score(prediction, one.target, one.labels)) for prediction, one in pairs]


def likeliest(model: Any, tokenizer: Any, cell: Cell, method: str) -> list[int]:
    """1 where no other label is as likely as the right one."""
    labels = {label: _tokens(tokenizer, label) for one in cell.questions for label in one.labels}
    asked = [(one.prompt, labels[label]) for one in cell.questions for label in one.labels]
    # All at one length, the longest, because some methods ask how long the input is; what follows a label cannot reach it
    width = max(len(prompt) + len(label) for prompt, label in asked)
    rows = torch.zeros(len(asked), width, dtype=torch.long)
    for row, (prompt, label) in zip(rows, asked, strict=True):
        row[: len(prompt) + len(label)] = torch.tensor([*prompt, *label])
    nll = token_nll(model, rows, method=method)
    found = iter(
        [
            float(row[len(prompt) - 1 : len(prompt) - 1 + len(label)].sum())
            for row, (prompt, label) in zip(nll, asked, strict=True)
        ]
    )
    scores = [{label: next(found) for label in one.labels} for one in cell.questions]
    return [
        int(all(some[one.target] < value for label, value in some.items() if label != one.target))
        for some, one in zip(scores, cell.questions, strict=True)
    ]


def _tokens(tokenizer: Any, label: str) -> list[int]:
    """As they come after the prompt's last sign."""
    before, whole = (tokenizer(text, add_special_tokens=False).input_ids for text in ("word:", f"word: {label}"))
    return [int(token) for token in whole[len(before) :]]
