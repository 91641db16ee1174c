"""Ministral 3 multiplies its queries by a law of the position, so that stock engines compute a temperature that grows.

    g(p) = 1 + beta ln(1 + floor(p / n_original))                   `llama_4_scaling_beta` of its rope parameters

One number, beta, is fitted to the temperatures a method has at all lengths; how far the law is then off is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.calibration.bake import sharpness_at
from lengthwise.methods.slots import Slots
from lengthwise.models.anatomy import Anatomy

KEY = "llama_4_scaling_beta"
ROWS = 512  # lengths at which the law is compared with the method


@dataclass(frozen=True)
class QueryLaw:
    """A fitted beta of Ministral 3's law, and how far it is off."""

    beta: float
    own_beta: float  # the model's own
    original: int  # tokens to a step
    error: float  # largest relative difference of g, over rows that see 1 ... length keys
    folded_error: float  # the same of one temperature for every row

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        """As a method on top of the model's own law."""
        return (law(visible, self.beta, self.original) / law(visible, self.own_beta, self.original)).float()

    @property
    def says(self) -> str:
        return (
            f"{KEY} {self.beta:.6g} gives each row a temperature within {100 * self.error:.2g} % of the method's; "
            f"one folded temperature would be {100 * self.folded_error:.2g} % off in short rows"
        )


def fitted_law(anatomy: Anatomy, slots: Slots, length: int) -> QueryLaw | None:
    """The beta nearest to the method's temperatures; None without such a law, or where one folded temperature is nearer."""
    rope: dict[str, Any] = getattr(anatomy.stack.config, "rope_parameters", None) or {}
    if rope.get(KEY) is None or not slots.laws:
        return None
    at_length = sharpness_at(anatomy, slots, length)
    if bool((at_length != at_length[0, 0]).any()) or any(anatomy.windows):
        return None
    n = torch.unique(torch.logspace(0, torch.log10(torch.tensor(float(length))), ROWS, dtype=torch.float64).round().long())
    own_beta, original = float(rope[KEY]), int(rope["original_max_position_embeddings"])
    own = law(n, own_beta, original)
    g = slots.inverse_temperature(n[None, None], 0)
    assert g is not None
    wanted = own * g.detach().double().expand(1, anatomy.heads, len(n))[0, 0]
    steps = law(n, 1.0, original) - 1
    if not bool((steps > 0).any()):
        return None
    beta = float((steps * (wanted - 1)).sum() / steps.square().sum())
    errors = [float((made / wanted - 1).abs().max()) for made in (1 + beta * steps, own * float(at_length[0, 0]))]
    return QueryLaw(beta, own_beta, original, *errors) if errors[0] < errors[1] else None


def law(n: Tensor, beta: float, original: int) -> Tensor:
    """g of the rows that see n keys: of position n - 1."""
    return 1 + beta * torch.log1p((n - 1).div(original, rounding_mode="floor").double())
