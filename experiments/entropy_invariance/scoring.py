"""Hides a document's tokens one at a time and asks a model for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import lengthwise as lw
from experiments.entropy_invariance.batches import Special
from experiments.entropy_invariance.prose import Chapter
from lengthwise.errors import require
from lengthwise.tasks.masked_tokens import hidden_one_by_one, places

TOKENS_AT_ONCE = 2**16


@dataclass(frozen=True)
class Answers:
    """Of every hidden token, [documents][hidden tokens]."""

    nll: list[list[float]]
    right: list[list[int]]


def beginning(chapter: Chapter, length: int, special: Special) -> NDArray[np.int64]:  # [length]
    """The first tokens of a chapter between [CLS] and [SEP], as in training."""
    inner = chapter.tokens[: length - 2]
    require(len(inner) == length - 2, f"{chapter.name} has {len(inner)} tokens, too few for an input of {length}")
    return np.concatenate([[special.cls], inner, [special.sep]])


def answers(
    model: Any,
    documents: Sequence[Chapter],
    length: int,
    count: int,
    special: Special,
    method: str,
    tokens_at_once: int = TOKENS_AT_ONCE,
) -> Answers:
    """`count` tokens of each document's beginning, the same ones for every model and method."""
    nll, right = [], []
    with lw.extend(model, method):
        for document in documents:
            ids = beginning(document, length, special)
            where = places(length, count, f"{document.name} {length}", edge=1)
            found = _asked(model, ids, where, special.mask, max(1, tokens_at_once // length))
            nll.append([round(float(value), 6) for value in found[0]])
            right.append([int(value) for value in found[1]])
    return Answers(nll, right)


@torch.inference_mode()
def _asked(model: Any, ids: NDArray[np.int64], where: list[int], mask: int, at_once: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Negative log-likelihood of each hidden token, and whether it is the likeliest."""
    copies, targets = torch.from_numpy(hidden_one_by_one(ids, where, mask)), torch.from_numpy(ids[where])
    nll, right = [], []
    for rows in torch.arange(len(where)).split(at_once):
        states = model.model(copies[rows].to(model.device)).last_hidden_state
        # Only the hidden token's state meets the head, which has thousands of rows
        states = states[torch.arange(len(rows)).to(states.device), torch.tensor(where)[rows].to(states.device)]
        logits = model.lm_head(states).double().cpu()
        target = targets[rows]
        nll.append(torch.nn.functional.cross_entropy(logits, target, reduction="none"))
        right.append(logits.argmax(-1) == target)
    return torch.cat(nll), torch.cat(right)
