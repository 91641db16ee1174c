"""GAU-alpha's one kind of layer, the gated attention unit.

    u, v, z = silu(x W_in);   q = gamma_q z,  k = gamma_k z;   out = (u * (A v)) W_out           Su et al. 2022

A is the softmax of one head over all tokens. Trained with CosScale, q and k have length 1 before they are rotated, and S stands
in the place of 1/sqrt(d). Trained with a temperature, g(n) multiplies the queries; n counts the real tokens of a sequence:

    softmax_plus   g(n) = ln n / ln 512
    infoscale      g(n) = sqrt((1 - n^(-2/d)) / (1 - n_train^(-2/d)))                            both also below n_train
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.errors import require
from lengthwise.models.eager import eager_attention_forward
from lengthwise.models.gau_alpha.rotation import apply_rotary_pos_emb
from lengthwise.models.trained_alibi import REACH, AlibiSlopes, factors_of


class GAUAlphaAttention(nn.Module):
    """One gated attention unit, without the norm and the residual around it."""

    is_causal = False
    relative_attention_max_distance = REACH

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        self.sizes = [config.intermediate_size, config.intermediate_size, config.head_dim]
        self.inward = nn.Linear(config.hidden_size, sum(self.sizes), bias=False)
        self.outward = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.gamma_q = nn.Parameter(torch.ones(config.head_dim))
        self.gamma_k = nn.Parameter(torch.ones(config.head_dim))
        self.scaling = config.head_dim**-0.5 if config.cos_scale is None else config.cos_scale
        self.has_relative_attention_bias = config.positions == "alibi"
        if self.has_relative_attention_bias:
            self.relative_attention_bias = AlibiSlopes([config.alibi_slope], factors_of(config, layer_idx))

    def forward(
        self,
        hidden: Tensor,  # [batch, tokens, hidden_size]
        position_embeddings: tuple[Tensor, Tensor] | None,
        attention_mask: Tensor | None,
        inverse_temperature: Tensor | None = None,  # [batch or 1]
        **kwargs: Any,
    ) -> Tensor:
        gate, value, shared = torch.split(nn.functional.silu(self.inward(hidden)), self.sizes, -1)
        query, key = self._queries_and_keys(shared[:, None], position_embeddings)
        if inverse_temperature is not None:
            query = query * inverse_temperature[:, None, None, None]
        if self.has_relative_attention_bias:
            tokens = hidden.shape[1]
            require(tokens <= REACH, f"a gau_alpha model with alibi takes at most {REACH} tokens, not {tokens}")
            kwargs["position_bias"] = self.compute_bias(tokens, tokens, device=hidden.device).to(value.dtype)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        states = (query.to(value.dtype), key.to(value.dtype), value[:, None])
        mixed, _ = attend(self, *states, attention_mask, dropout=dropout, scaling=self.scaling, is_causal=False, **kwargs)
        return self.outward(gate * mixed.flatten(2))  # type: ignore[no-any-return]

    def _queries_and_keys(self, shared: Tensor, tables: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        query, key = shared * self.gamma_q, shared * self.gamma_k
        if self.config.cos_scale is not None:
            query, key = (nn.functional.normalize(states.float(), dim=-1).to(states.dtype) for states in (query, key))
        return (query, key) if tables is None else apply_rotary_pos_emb(query, key, *tables)

    def compute_bias(
        self, query_length: int, key_length: int, device: torch.device | None = None, past_seen_tokens: int = 0
    ) -> Tensor:  # [1, 1, queries, keys]
        """ALiBi's -slope |distance|, in the form in which T5 offers its learned bias."""
        return self.relative_attention_bias.bias(query_length, key_length, past_seen_tokens, device)


def inverse_temperature(config: Any, tokens: Tensor) -> Tensor | None:
    """g at `tokens` [batch], the number of real tokens of each sequence; None where the model was trained without."""
    n = tokens.double().clamp_min(2)
    if config.normalisation == "softmax_plus":
        return (n.log() / math.log(512)).float()
    if config.normalisation == "infoscale":
        power, trained = -2 / int(config.head_dim), float(config.max_position_embeddings)
        return torch.sqrt((1 - n**power) / (1 - trained**power)).float()
    return None
