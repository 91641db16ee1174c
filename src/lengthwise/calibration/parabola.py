"""How a layer's statistic answers to its sharpness, from three measurements side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Parabola:
    """The parabolas through three points y [3, ...] at centre - width, centre, centre + width."""

    centre: Tensor
    width: float
    y: Tensor

    @property
    def slope(self) -> Tensor:
        return (self.y[2] - self.y[0]) / (2 * self.width)

    @property
    def bend(self) -> Tensor:
        return (self.y[2] - 2 * self.y[1] + self.y[0]) / (2 * self.width**2)

    def __call__(self, x: float) -> Tensor:
        """The value at x; on a straight line beyond four widths, where the bend is no longer a measurement."""
        far = x - self.centre
        near = far.clamp(-4 * self.width, 4 * self.width)
        curved = self.y[1] + self.slope * near + self.bend * near**2
        return curved + (self.slope + 2 * self.bend * near) * (far - near)

    def root(self, target: Tensor) -> Tensor:
        """How far from the centre the parabola takes the value `target`; of two roots the nearer one."""
        gap = target - self.y[1]
        discriminant = self.slope**2 + 4 * self.bend * gap
        # The form of the quadratic formula that stays accurate, and finite, as the bend vanishes
        root = 2 * gap / (self.slope + torch.sign(self.slope) * discriminant.clamp_min(0).sqrt())
        # A parabola that never gets there still says which way: follow its slope
        root = torch.where(discriminant > 0, root, gap / self.slope)
        root = torch.where(gap == 0, torch.zeros_like(root), root)
        return root.nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)
