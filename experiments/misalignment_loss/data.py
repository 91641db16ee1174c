"""BABILong's questions, asked of a fine-tuned model.

A small model's answers to BABILong are mostly beside the point. So besides what it writes, a label's log-likelihood after the
prompt is compared with those of all labels that the question does not name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from lengthwise.errors import require
from lengthwise.evaluation.likelihood import token_nll
from lengthwise.evaluation.sweep.generate import greedy_answers
from lengthwise.models.extend import extend
from lengthwise.tasks import babilong
from lengthwise.tasks.material.babi import read_stories

KINDS = ("qa1", "qa2", "qa3", "qa4", "qa5")
DEPTHS, DEPTH_FACTOR = (0.0, 0.25, 0.5, 0.75), 4  # Table 7, at the paper's four training lengths


@dataclass(frozen=True)
class Question:
    prompt: list[int]  # tokens
    target: str
    labels: list[str]  # to choose from


@dataclass(frozen=True)
class Cell:
    """Questions of one kind at one length, and at one depth or spread."""

    kind: str
    factor: int
    depth: float | None
    questions: list[Question]

    @property
    def chance(self) -> float:
        return fmean(1 / len(question.labels) for question in self.questions)


def cells(
    tokenizer: Any,
    train_length: int,
    babi: Path,
    filler: Sequence[str],
    samples: int,
    kinds: Sequence[str],
    factors: Sequence[int],
) -> list[Cell]:
    """Table 6 over all kinds, then Table 7 over the first; `babi` is the folder of bAbI's files, `filler` are sentences."""
    wanted: list[tuple[str, int, float | None]] = [(kind, factor, None) for factor in factors for kind in kinds]
    wanted += [(kinds[0], DEPTH_FACTOR, depth) for depth in DEPTHS]
    made = []
    for kind, factor, depth in wanted:
        files = sorted(babi.glob(f"{kind}_*_test.txt"))
        require(len(files) == 1, f"{babi} should hold one file {kind}_*_test.txt of bAbI's, and has {len(files)}")
        length = factor * train_length - babilong.ANSWER_TOKENS
        drawn = babilong.samples(tokenizer, length, samples, 0, depth, kind, read_stories(files[0]), filler)
        ids = [[int(token) for token in tokenizer(one.prompt, verbose=False).input_ids] for one in drawn]
        questions = [Question(prompt, one.target, [*one.labels]) for prompt, one in zip(ids, drawn, strict=True)]
        made.append(Cell(kind, factor, depth, questions))
    return made


def written(model: Any, tokenizer: Any, cell: Cell, method: str) -> list[int]:
    """1 where what the model writes is right, by BABILong's own rule."""
    with extend(model, method):
        predictions = greedy_answers(model, tokenizer, [question.prompt for question in cell.questions], babilong.ANSWER_TOKENS)
    pairs = zip(predictions, cell.questions, strict=True)
    return [int(babilong.score(prediction, question.target, question.labels)) for prediction, question in pairs]


def likeliest(model: Any, tokenizer: Any, cell: Cell, method: str) -> list[int]:
    """1 where no other label is as likely as the right one."""
    labels = {label: _tokens(tokenizer, label) for question in cell.questions for label in question.labels}
    asked = [(question.prompt, labels[label]) for question in cell.questions for label in question.labels]
    # All at one length, the longest, because some methods ask how long the input is; what follows a label cannot reach it
    width = max(len(prompt) + len(label) for prompt, label in asked)
    rows = torch.zeros(len(asked), width, dtype=torch.long)
    for row, (prompt, label) in zip(rows, asked, strict=True):
        row[: len(prompt) + len(label)] = torch.tensor([*prompt, *label])
    nll = token_nll(model, rows, method=method)
    ends = [(len(prompt) - 1, len(prompt) - 1 + len(label)) for prompt, label in asked]
    losses = iter([float(row[first:last].sum()) for row, (first, last) in zip(nll, ends, strict=True)])
    marks = []
    for question in cell.questions:
        scores = {label: next(losses) for label in question.labels}
        right = scores.pop(question.target)
        marks.append(int(all(right < other for other in scores.values())))
    return marks


def _tokens(tokenizer: Any, label: str) -> list[int]:
    """The label's tokens as they come after the prompt's last sign."""
    before, whole = (tokenizer(text, add_special_tokens=False).input_ids for text in ("word:", f"word: {label}"))
    return [int(token) for token in whole[len(before) :]]
