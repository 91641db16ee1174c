"""GAU-alpha's rotary positions: neighbouring components 2i and 2i + 1 make a pair, unlike Llama's halves.

(a, b) -> (a cos - b sin, b cos + a sin),   at angle p theta_i,   theta_i = base^(-2i/d)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class GAUAlphaRotaryEmbedding(nn.Module):
    """cos and sin of every position, each number twice, as its pair needs it."""

    # Names that transformers looks for when it makes the buffers of a loaded model
    rope_type = "default"
    inv_freq: Tensor
    original_inv_freq: Tensor

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        own, self.attention_scaling = self.compute_default_rope_parameters(config)
        self.register_buffer("inv_freq", own, persistent=False)
        self.register_buffer("original_inv_freq", own.clone(), persistent=False)

    @staticmethod
    def compute_default_rope_parameters(config: Any, **_: Any) -> tuple[Tensor, float]:
        exponent = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        return config.rope_parameters["rope_theta"] ** -exponent, 1.0

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:  # both [batch, tokens, head_dim]
        # In float32 also under autocast: positions of thousands do not fit 8 bits
        with torch.autocast(x.device.type, enabled=False):
            angles = position_ids[..., None].float() * self.inv_freq.float()
            angles = angles.repeat_interleave(2, -1)
            return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + _quarter_turn(q) * sin, k * cos + _quarter_turn(k) * sin


def _quarter_turn(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
