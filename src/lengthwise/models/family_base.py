"""What the package's own model families, GAU-alpha and the small decoder, are built on.

ALiBi that a model was trained with, -slope_h |distance|, is kept and offered as T5 keeps its learned bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init

from lengthwise.errors import require

# Most tokens: extended models read the bias from a table of so many distances each way
REACH = 2**16


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """transformers' `eager` attention, every weight written down, with a bias beside the mask."""
    # CosScale makes logits of hundreds, which 8 bits would round to whole numbers
    with torch.autocast(query.device.type, enabled=False):
        logits = query.float() @ key.float().transpose(2, 3) * scaling
    for added in (position_bias, attention_mask):
        logits = logits if added is None else logits + added
    weights = logits.softmax(-1, dtype=torch.float32).to(value.dtype)
    weights = nn.functional.dropout(weights, dropout, module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


class AlibiSlopes(nn.Module):
    """One number a head, where T5 has its table. No checkpoint holds it: config.alibi_factors carries a baked temperature."""

    weight: Tensor

    def __init__(self, slopes: Sequence[float], factors: Sequence[float] | None = None) -> None:
        super().__init__()
        self.trained = tuple(slopes)
        self.factors = (1.0,) * len(slopes) if factors is None else tuple(factors)
        self.register_buffer("weight", torch.tensor(self.slopes), persistent=False)

    @property
    def slopes(self) -> tuple[float, ...]:
        return tuple(slope * factor for slope, factor in zip(self.trained, self.factors, strict=True))

    def sharpen(self, factors: Sequence[float]) -> None:
        """Multiply every slope, now and in a copy that is made with these `factors`."""
        self.factors = tuple(old * new for old, new in zip(self.factors, factors, strict=True))
        self.weight.copy_(torch.tensor(self.slopes))


def check_alibi_factors(config: Any) -> None:
    layers, heads, factors = config.num_hidden_layers, config.num_attention_heads, config.alibi_factors
    fits = factors is None or [len(row) for row in factors] == [heads] * layers
    require(fits, f"alibi_factors must be {layers} lists, one a layer, of {heads} numbers; leave it out for those of ALiBi")


class FamilyAttention(nn.Module):
    """Self-attention whose bias, where config.positions is `alibi`, can be asked for as T5's can."""

    relative_attention_max_distance = REACH

    def __init__(self, config: Any, layer_idx: int, slopes: Sequence[float]) -> None:
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.has_relative_attention_bias = config.positions == "alibi"
        if self.has_relative_attention_bias:
            factors = None if config.alibi_factors is None else config.alibi_factors[layer_idx]
            self.relative_attention_bias = AlibiSlopes(slopes, factors)

    def compute_bias(
        self, query_length: int, key_length: int, device: torch.device | None = None, past_seen_tokens: int | None = None
    ) -> Tensor:  # [1, heads, queries, keys]
        """The bias in the form in which T5 offers its learned one; unless told otherwise the queries are the last tokens."""
        slopes = self.relative_attention_bias.weight
        device = slopes.device if device is None else device
        before = key_length - query_length if past_seen_tokens is None else past_seen_tokens
        query_positions = torch.arange(query_length, device=device) + before
        distance = torch.arange(key_length, device=device) - query_positions[:, None]
        return -slopes.to(device)[None, :, None, None] * distance.abs()

    def bias_arguments(self, query: Tensor, key: Tensor, before: int = 0) -> dict[str, Tensor]:
        """What an attention function needs beside queries and keys; `before` tokens stand before the first query."""
        if not self.has_relative_attention_bias:
            return {}
        queries, keys = query.shape[2], key.shape[2]
        require(keys <= REACH, f"a {self.config.model_type} model with alibi takes at most {REACH} tokens, not {keys}")
        bias = self.compute_bias(queries, keys, device=query.device, past_seen_tokens=before)
        return {"position_bias": bias.to(query.dtype)}


class FamilyModel(PreTrainedModel):  # type: ignore[misc]
    base_model_prefix = "model"
    _supports_sdpa = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, AlibiSlopes):
            # transformers has made the buffer anew, for a loaded model
            init.copy_(module.weight, torch.tensor(module.slopes))
