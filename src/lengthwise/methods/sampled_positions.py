"""Batches with positions drawn at random: what the training-time position methods have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import BadInput

# Seeds of one process and of the next: no process has as many workers
APART = 10_000

Features = Sequence[Mapping[str, Any]] | Mapping[str, Any]


class Generators:
    """One random generator a data-loading process.

    A collator is copied into every worker of a DataLoader, at every epoch anew; with one seed for all they would draw the same
    positions over and over. A worker's own seed differs by worker and epoch and follows from torch's global one, which is the
    same in all processes that `accelerate launch` or `torchrun` start: these differ by rank.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._by_worker: dict[int | None, torch.Generator] = {}

    def here(self) -> torch.Generator:
        worker = torch.utils.data.get_worker_info()
        key = None if worker is None else worker.seed
        if key not in self._by_worker:
            rank = int(os.environ.get("RANK", "0"))
            self._by_worker[key] = torch.Generator().manual_seed(self.seed + (key or 0) + APART * rank)
        return self._by_worker[key]


def with_positions(features: Features, sample: Callable[[int], Tensor]) -> dict[str, Any]:
    """Add `position_ids` to a batch: `sample(n)` for the n real tokens of every sequence, 0 for padding; and its mask."""
    batch = dict(features) if isinstance(features, Mapping) else _stacked(features)
    if "input_ids" not in batch:
        raise BadInput(f"a batch needs input_ids to get positions; this one has {', '.join(batch) or 'nothing'}")
    ids = torch.as_tensor(batch["input_ids"])
    if ids.dim() != 2:
        raise BadInput(f"input_ids must be [batch, tokens], not of shape {tuple(ids.shape)}")
    mask = batch.get("attention_mask")
    # Never without: transformers would take every leap for the begin of another sequence, which sees none of those before it
    mask = torch.ones_like(ids, dtype=torch.long) if mask is None else torch.as_tensor(mask)
    positions = torch.zeros_like(ids, dtype=torch.long)
    for row, real in enumerate(mask.bool()):
        positions[row, real] = sample(int(real.sum())).to(ids.device)
    return {**batch, "attention_mask": mask, "position_ids": positions}


def _stacked(features: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not features:
        raise BadInput("an empty list of features makes no batch")
    batch = {}
    for key in features[0]:
        columns = [torch.as_tensor(feature[key]) for feature in features]
        if len(shapes := {tuple(column.shape) for column in columns}) > 1:
            raise BadInput(f"the features' {key} differ in shape, {sorted(shapes)}; pad them first and give the batch")
        batch[key] = torch.stack(columns)
    return batch
