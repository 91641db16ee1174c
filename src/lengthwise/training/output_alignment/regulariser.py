"""The training loss with the misalignment of outputs in it.

    L* = L_train + alpha L_misalign                                                          Output Alignment, equation 4

Both readings of a row (views.py) give cross-entropies; L_train is the mean of all of them, L_misalign the mean L_SCE over their
overlap. The two readings run as one batch of twice the rows, which costs what two forwards cost and suits wrappers that expect
one forward a step. The paper finds alpha from 0.1 to 0.3 best; 1.0 and an e of up to L break training (Tables 4, 5). Not in the
paper: with `compare` kl the mean symmetric KL takes the place of L_misalign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lengthwise.errors import require, require_one_of
from lengthwise.training.output_alignment.fused import COMPARISONS, IGNORED, SCE, weighted_sums
from lengthwise.training.output_alignment.views import Views, drawn_extra, extra_range

READ = ("input_ids", "attention_mask", "labels")


@dataclass(frozen=True)
class Regulariser:
    """The parts of L* that need no model and no data: its weight, and where the two readings stand."""

    train_length: int  # L, tokens of each reading
    alpha: float = 0.1
    sampling: str = "1..L/2"  # where e comes from, a range of Table 5
    overlap: str = "whole"  # which positions count: views.py
    compare: str = SCE  # what the readings are compared by: sce, or kl, which leaves their entropies out

    def __post_init__(self) -> None:
        possible = 0 <= self.alpha < math.inf
        require(possible, f"alpha must be a number from 0 on, not {self.alpha}; the paper takes 0.1 to 0.3")
        require_one_of("compare", self.compare, COMPARISONS)
        self.views(self.largest)

    @property
    def largest(self) -> int:
        """The largest e."""
        return extra_range(self.sampling, self.train_length)[1]

    @property
    def tokens(self) -> int:
        """How many tokens a row must have, whatever e is drawn."""
        return self.train_length + self.largest

    def views(self, extra: int) -> Views:
        return Views(self.train_length, extra, self.overlap)

    def drawn(self, seed: int, step: int) -> Views:
        """The readings of one step, the same for its whole batch."""
        return self.views(drawn_extra(self.sampling, self.train_length, seed, step))


@dataclass(frozen=True)
class TwoReadings:
    """Rows of tokens as two readings: the first readings of all rows, then the second ones."""

    views: Views
    inputs: dict[str, Tensor]  # what the model is called with: input_ids and, where given, attention_mask, [2 batch, L]
    targets: Tensor  # [2 batch, L], the token to come, or IGNORED
    counted: Tensor  # [batch, positions], which of the overlap are real tokens

    @classmethod
    def of(cls, batch: Mapping[str, Tensor], views: Views) -> TwoReadings:
        odd = ", ".join(sorted(set(batch) - set(READ)))
        require(not odd, f"two readings of a row are made of {', '.join(READ)}, not of {odd}; leave that out")
        ids, mask = batch["input_ids"].long(), batch.get("attention_mask")
        tokens = ids.shape[1]
        require(tokens >= views.tokens, f"rows of {tokens} tokens are too short for two readings; give at least {views.tokens}")
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        labels = _both(batch.get("labels", ids).masked_fill(~real, IGNORED), views)
        targets = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        given = {"input_ids": ids} if mask is None else {"input_ids": ids, "attention_mask": mask}
        return cls(views, {name: _both(x, views) for name, x in given.items()}, targets, real[:, views.shared[0]])

    @property
    def counts(self) -> Tensor:  # [2]
        """Targets of both readings, and positions of the overlap."""
        return torch.stack([(self.targets != IGNORED).sum(), self.counted.sum()])

    def loss(self, logits: Tensor, regulariser: Regulariser, counts: Tensor) -> tuple[Tensor, Tensor]:
        """L*, and without their gradients the two means it is made of; `counts` is what they are means over."""
        places, given = tuple(self.targets.shape), tuple(logits.shape[:2])
        problem = f"the model was given {places} tokens and gave logits of {given}"
        require(places == given, f"{problem}; leave out what puts tokens of its own in front, such as prompt tuning")
        counts = counts.clamp_min(1)
        kind = torch.promote_types(logits.dtype, torch.float32)
        weights = torch.tensor([1.0, regulariser.alpha], dtype=kind, device=counts.device) / counts
        loss, sums = weighted_sums(logits, self.targets, self.counted, self.views, weights, regulariser.compare)
        return loss, sums / counts


def regularised_loss(model: nn.Module, batch: Mapping[str, Tensor], regulariser: Regulariser, extra: int) -> Tensor:
    """L* of a batch of rows (input_ids; attention_mask and labels where there are some) under a causal language model."""
    readings = TwoReadings.of(batch, regulariser.views(extra))
    return readings.loss(model(**readings.inputs).logits, regulariser, readings.counts)[0]


def _both(rows: Tensor, views: Views) -> Tensor:  # [batch, tokens] -> [2 batch, L]
    return torch.cat([rows[:, views.first], rows[:, views.second]])
