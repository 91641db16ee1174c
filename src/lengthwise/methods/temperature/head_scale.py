"""HeadScale: one learned temperature for every head of every layer, the same at all lengths.

    g(layer, head) = max(scale(layer, head), least)                 Wang et al. 2024, least = 1: no head is flattened

Found for models without a position encoding (`nope` takes a rotary model's away): their heads scatter at length, each in its
own way, and a few hundred steps on long inputs tell how much each has to be sharpened. `train --adjustment head_scale` learns
these numbers and leaves the weights of the model as they are. They begin at `start`; at 1 nothing changes before training. The
authors' script for 8,192 tokens begins at 1.6 and learns for 200 steps at a rate of 0.05 or 0.1. As after their clamped steps,
a head at `least` still has a gradient and may come back. `weights` is a safetensors file made by `save`.

Paper: Wang et al. 2024, arXiv:2404.12224
Code: https://github.com/AntNLP/nope_head_scale
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from lengthwise.errors import require
from lengthwise.methods import weights as weights_file


class HeadScale(nn.Module):
    """A module, as it has numbers to train."""

    learns_alone = True

    def __init__(self, layers: int, heads: int, start: float = 1.0, least: float = 1.0, weights: str | None = None) -> None:
        super().__init__()
        require(layers >= 1 and heads >= 1, f"head_scale needs layers and heads, not {layers} and {heads}")
        require(0 < least < math.inf, f"head_scale needs least > 0, not {least}")
        require(least <= start < math.inf, f"head_scale needs start >= {least}, its least, not {start}")
        self.layers, self.heads, self.start, self.least, self.weights = layers, heads, start, least, weights
        self.scale = nn.Parameter(torch.full((layers, heads), float(start)))
        if weights is not None:
            weights_file.load(self, weights, "scales of heads", "to begin at start")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:  # [batch, 1, rows] -> [batch, heads, 1]
        scale = self.scale[layer].float()
        # The bound is seen by the value alone, or a head below it would have no gradient ever after
        g = scale + (scale.clamp_min(self.least) - scale).detach()
        return g.to(visible.device)[None, :, None].expand(visible.shape[0], -1, 1)

    def check_fits(self, layers: int, heads: int) -> None:
        own = f"head_scale was made for {self.layers} layers of {self.heads} heads, this model has {layers} of {heads}"
        require((layers, heads) == (self.layers, self.heads), f"{own}; write head_scale:layers={layers},heads={heads}")

    def extra_repr(self) -> str:
        return f"layers={self.layers}, heads={self.heads}, start={self.start}, least={self.least}, weights={self.weights}"

    def save(self, path: str | Path) -> None:
        weights_file.save(self, path)
