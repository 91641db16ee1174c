"""Hides tokens of a document, few at a time, and asks a model for each."""

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
from lengthwise.tasks.masked_tokens import hidden, places, together

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
    tokens_each: int | None = None,
    tokens_at_once: int = TOKENS_AT_ONCE,
) -> Answers:
    """`count` tokens of each document's beginning, the same for every model and method; `together` says how many at once."""
    nll, right = [], []
    with lw.extend(model, method):
        for document in documents:
            ids = beginning(document, length, special)
            groups = together(places(length, count, f"{document.name} {length}", edge=1), length, tokens_each)
            found = _asked(model, ids, groups, special.mask, max(1, tokens_at_once // length))
            nll.append([round(float(value), 6) for value in found[0]])
            right.append([int(value) for value in found[1]])
    return Answers(nll, right)


@torch.inference_mode()
def _asked(
    model: Any, ids: NDArray[np.int64], groups: list[list[int]], mask: int, at_once: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Negative log-likelihood of each hidden token, and whether it is the likeliest."""
    copies, device = torch.from_numpy(hidden(ids, groups, mask)), model.device
    nll, right = [], []
    for first in range(0, len(groups), at_once):
        asked = [(copy, place) for copy, group in enumerate(groups[first : first + at_once]) for place in group]
        rows, where = torch.tensor(asked).T
        states = model.model(copies[first : first + at_once].to(device)).last_hidden_state
        # Only the hidden tokens' states meet the head, which has thousands of rows
        logits = model.lm_head(states[rows.to(device), where.to(device)]).double().cpu()
        target = torch.from_numpy(ids)[where]
        nll.append(torch.nn.functional.cross_entropy(logits, target, reduction="none"))
        right.append(logits.argmax(-1) == target)
    return torch.cat(nll), torch.cat(right)
