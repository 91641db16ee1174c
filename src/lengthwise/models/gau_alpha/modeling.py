"""GAU-alpha: an encoder of gated attention units for masked tokens.

    x -> rms(x + unit(x)),   rms(x) = x / sqrt(mean(x^2) + eps),   after every unit and after the embeddings

No biases, no gains; the head is the token embedding. Positions, CosScale and temperature are those it was trained with; methods
for longer inputs come from `lengthwise.extend`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput
from transformers.utils.generic import can_return_tuple

from lengthwise.errors import BadInput
from lengthwise.models.gau_alpha.attention import GAUAlphaAttention, inverse_temperature
from lengthwise.models.gau_alpha.configuration import GAUAlphaConfig
from lengthwise.models.gau_alpha.rotation import GAUAlphaRotaryEmbedding
from lengthwise.models.trained_alibi import AlibiSlopes


def rms(x: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


class GAUAlphaLayer(nn.Module):
    def __init__(self, config: GAUAlphaConfig, layer_idx: int) -> None:
        super().__init__()
        self.attention = GAUAlphaAttention(config, layer_idx)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.eps = config.layer_norm_eps

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return rms(hidden + self.dropout(self.attention(hidden, *args, **kwargs)), self.eps)


class GAUAlphaPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    config_class = GAUAlphaConfig
    base_model_prefix = "model"
    _no_split_modules = ("GAUAlphaLayer",)
    _supports_sdpa = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, GAUAlphaAttention):
            init.ones_(module.gamma_q)
            init.ones_(module.gamma_k)
        elif isinstance(module, AlibiSlopes):
            module.restore()


class GAUAlphaModel(GAUAlphaPreTrainedModel):
    """The encoder without a head."""

    def __init__(self, config: GAUAlphaConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed_segments = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layers = nn.ModuleList(GAUAlphaLayer(config, at) for at in range(config.num_hidden_layers))
        if config.positions == "rope":
            self.rotary_emb = GAUAlphaRotaryEmbedding(config)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,  # [batch, tokens], 0 for padding
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,  # [batch or 1, tokens]
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        if (input_ids is None) == (inputs_embeds is None):
            raise BadInput("a gau_alpha model needs input_ids or inputs_embeds, and not both")
        tokens = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if token_type_ids is None:
            token_type_ids = torch.zeros((1, 1), dtype=torch.long, device=tokens.device)
        if position_ids is None:
            position_ids = torch.arange(tokens.shape[1], device=tokens.device)[None]
        hidden = self.dropout(rms(tokens + self.embed_segments(token_type_ids), self.config.layer_norm_eps))
        mask = create_bidirectional_mask(self.config, hidden, attention_mask)
        tables = self.rotary_emb(hidden, position_ids) if self.config.positions == "rope" else None
        g = self._inverse_temperature(hidden, attention_mask)
        for layer in self.layers:
            hidden = layer(hidden, tables, mask, g, position_ids=position_ids, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden)

    def _inverse_temperature(self, hidden: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        if self.config.normalisation == "softmax":
            return None
        if attention_mask is None:
            return inverse_temperature(self.config, torch.tensor([hidden.shape[1]], device=hidden.device))
        if attention_mask.dim() != 2:
            shape = tuple(attention_mask.shape)
            raise BadInput(f"{self.config.normalisation} counts real tokens: give a mask of [batch, tokens], not of {shape}")
        return inverse_temperature(self.config, attention_mask.sum(-1))


class GAUAlphaForMaskedLM(GAUAlphaPreTrainedModel):
    """The encoder with a head that names masked tokens."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: GAUAlphaConfig) -> None:
        super().__init__(config)
        self.model = GAUAlphaModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new: nn.Linear) -> None:
        self.lm_head = new

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,  # [batch, tokens], -100 where nothing is asked
        **kwargs: Any,
    ) -> MaskedLMOutput:
        hidden = self.model(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs).last_hidden_state
        logits = self.lm_head(hidden)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        return MaskedLMOutput(loss=loss, logits=logits)
