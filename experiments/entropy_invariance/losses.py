"""The curves of training, a line a point in OUT/<model>/losses.jsonl."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.entropy_invariance.configuration import Configuration
from experiments.entropy_invariance.rows import ROWS
from lengthwise.records.append_only import read_lines

LOSSES = "losses.jsonl"


@dataclass(frozen=True)
class Loss:
    """One point of the curves."""

    step: int
    kind: str  # "training": mean since the point before; "held out"
    loss: float  # cross-entropy of the tokens asked for, in nats

    @property
    def key(self) -> tuple[int, str]:
        return self.step, self.kind


def read_losses(out: Path) -> dict[Configuration, list[Loss]]:
    """Of the models of the tables."""
    curves = {one: read_lines(out / one.name / LOSSES, Loss) for one in dict.fromkeys(row.configuration for row in ROWS)}
    return {one: curve for one, curve in curves.items() if any(loss.kind == "training" for loss in curve)}
