"""Token ids of the user's instead of a text, for models without a tokenizer: how well is it told what follows in them?

Stretches of the rows, none of which overlap, are read as places of a text are; half of them choose, and the others confirm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lengthwise.common.sequences import cut_rows
from lengthwise.errors import require
from lengthwise.evaluation.recommendation.exam import CONFIRM, FRESH, RACE, ROUNDS
from lengthwise.evaluation.recommendation.measure import Measure, TextLikelihood
from lengthwise.evaluation.recommendation.text import FEWEST, TextExam
from lengthwise.models.anatomy import has_encoder
from lengthwise.tasks.language_modelling import Frame, frame_of


@dataclass(frozen=True)
class RowExam(TextExam):
    """An exam of places in rows of token ids; there is no text."""

    rows: tuple[Tensor, ...]  # each [tokens]

    @property
    def measure(self) -> Measure:
        return TextLikelihood(f"your token ids at {self.length:,} tokens")

    @property
    def options(self) -> Sequence[str]:
        # Token ids are given in Python only
        return []

    def material(self, statistic: str, sequences: int | None) -> dict[str, Any]:
        return {"input_ids": self.places[RACE], "sequences": sequences}

    @cached_property
    def tokens(self) -> list[int]:
        return list(torch.cat(self.rows).tolist())

    @cached_property
    def places(self) -> dict[str, Tensor]:  # [places, length + continuation]
        width = self.length + self.continuation
        n = sum(len(row) // width for row in self.rows)
        there = f"input_ids hold {n} stretches of {width:,} tokens, {self.length:,} to read and {self.continuation} that follow"
        require(n >= 2 * FEWEST, f"{there}; at least {2 * FEWEST} are needed, give more or longer ones, or a smaller length")
        cut = cut_rows(self.rows, width, n, self.seed)
        return {RACE: cut[: n // 2][: ROUNDS[-1]], CONFIRM: cut[n // 2 :][: FRESH[-1]]}

    @cached_property
    def _settings(self) -> str:
        # Places follow from where rows end
        return repr((super()._settings, [len(row) for row in self.rows]))

    @cached_property
    def frame(self) -> Frame:
        return frame_of(self.tokenizer, has_encoder(self.model), sentinel=False)
