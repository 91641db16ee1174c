"""What comes early: retrieval in short inputs over few documents, until finding is learnt; then more of everything.

    shares = early + grown * (weights - early),   grown = (step - curriculum) / curriculum, within 0 and 1

Before step `curriculum` inputs are short, and documents grow in number from 1 to 4 in the first half, while the rate warms up;
afterwards they grow with the shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FEW, MOST = 4, 12  # documents


@dataclass(frozen=True)
class Stage:
    early: bool  # whether all inputs are short
    documents: int  # the most that a question stands over
    grown: float  # the part of the way from the early shares to the final ones


def stage(step: int, curriculum: int) -> Stage:
    if step < curriculum:
        return Stage(True, min(FEW, 1 + 2 * FEW * step // curriculum), 0.0)
    grown = min(1.0, (step - curriculum) / curriculum) if curriculum else 1.0
    return Stage(False, FEW + round(grown * (MOST - FEW)), grown)


def mixed(early: Mapping[str, float], weights: Mapping[str, float], grown: float) -> dict[str, float]:
    return {name: early[name] + grown * (share - early[name]) for name, share in weights.items()}
