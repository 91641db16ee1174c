"""The small decoder's attention: the one equation, causal, with the positions that the model was trained with.

    logit(i, j) = q_i . k_j / sqrt(d) + bias_h(j - i),   j <= i

`alibi` fills the bias with -2^(-8h/H) |j - i|, `rope` rotates q and k, `learned` and `nope` leave both as they are. Slots that
are filled at run time come from `lengthwise.extend`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from lengthwise.common.laws import alibi_slopes
from lengthwise.errors import require
from lengthwise.models.eager import eager_attention_forward
from lengthwise.models.trained_alibi import REACH, AlibiSlopes, factors_of


class SmallDecoderAttention(nn.Module):
    is_causal = True
    relative_attention_max_distance = REACH

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.scaling = config.head_dim**-0.5
        inner = config.num_attention_heads * config.head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(config.hidden_size, inner) for _ in range(3))
        self.o_proj = nn.Linear(inner, config.hidden_size)
        self.has_relative_attention_bias = config.positions == "alibi"
        if self.has_relative_attention_bias:
            slopes = alibi_slopes(config.num_attention_heads)
            self.relative_attention_bias = AlibiSlopes(slopes, factors_of(config, layer_idx))

    def forward(
        self,
        hidden: Tensor,  # [batch, tokens, hidden_size]
        position_embeddings: tuple[Tensor, Tensor] | None,
        attention_mask: Tensor | None,
        past_key_values: Any = None,
        past_seen_tokens: int = 0,
        **kwargs: Any,
    ) -> Tensor:
        apart = (*hidden.shape[:-1], -1, self.config.head_dim)
        query, key, value = (part(hidden).view(apart).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        if position_embeddings is not None:
            query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        if self.has_relative_attention_bias:
            keys = key.shape[2]
            require(keys <= REACH, f"a small_decoder with alibi takes at most {REACH} tokens, not {keys}")
            bias = self.compute_bias(query.shape[2], keys, device=hidden.device, past_seen_tokens=past_seen_tokens)
            kwargs["position_bias"] = bias.to(value.dtype)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        mixed, _ = attend(self, query, key, value, attention_mask, dropout=0.0, scaling=self.scaling, **kwargs)
        return self.o_proj(mixed.flatten(2))  # type: ignore[no-any-return]

    def compute_bias(
        self, query_length: int, key_length: int, device: torch.device | None = None, past_seen_tokens: int | None = None
    ) -> Tensor:  # [1, heads, queries, keys]
        """The bias in the form in which T5 offers its learned one; unless told otherwise the queries are the last tokens."""
        before = key_length - query_length if past_seen_tokens is None else past_seen_tokens
        return self.relative_attention_bias.bias(query_length, key_length, before, device)
