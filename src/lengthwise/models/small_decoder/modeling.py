"""The small decoder: a pre-norm Transformer, with a head that reads one real number and one that names the next token.

    x -> x + attention(norm(x)),   x -> x + W_2 act(W_1 norm(x)),   LayerNorm at the end

Output Alignment, appendix A: the number is a feed-forward network of the last token's state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast, SequenceClassifierOutput
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.utils.generic import can_return_tuple

from lengthwise.errors import BadInput, require
from lengthwise.models.small_decoder.attention import SmallDecoderAttention
from lengthwise.models.small_decoder.configuration import SmallDecoderConfig
from lengthwise.models.trained_alibi import AlibiSlopes


class SmallDecoderLayer(nn.Module):
    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.attention = SmallDecoderAttention(config, layer_idx)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.hidden_size, config.intermediate_size),
            ACT2FN[config.hidden_act],
            nn.Linear(config.intermediate_size, config.hidden_size),
        )

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), *args, **kwargs)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))  # type: ignore[no-any-return]


class SmallDecoderPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    config_class = SmallDecoderConfig
    base_model_prefix = "model"
    _no_split_modules = ("SmallDecoderLayer",)
    _supports_sdpa = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, AlibiSlopes):
            module.restore()


class SmallDecoderModel(SmallDecoderPreTrainedModel):
    """The decoder without a head."""

    def __init__(self, config: SmallDecoderConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(SmallDecoderLayer(config, at) for at in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        if config.positions == "learned":
            self.embed_positions = nn.Embedding(config.learned_positions, config.hidden_size)
        elif config.positions == "rope":
            self.rotary_emb = LlamaRotaryEmbedding(config)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,  # [batch, tokens], 0 for padding
        position_ids: Tensor | None = None,  # [batch or 1, tokens]
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        if (input_ids is None) == (inputs_embeds is None):
            raise BadInput("a small_decoder needs input_ids or inputs_embeds, and not both")
        hidden = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        seen = past_key_values.get_seq_length() if past_key_values is not None else 0
        if position_ids is None:
            position_ids = torch.arange(seen, seen + hidden.shape[1], device=hidden.device)[None]
        if self.config.positions == "learned":
            most, tokens = self.config.learned_positions, seen + hidden.shape[1]
            require(tokens <= most, f"{tokens} tokens are more than the {most} learned positions of this small_decoder")
            hidden = hidden + self.embed_positions(position_ids)
        tables = self.rotary_emb(hidden, position_ids) if self.config.positions == "rope" else None
        mask = create_causal_mask(self.config, hidden, attention_mask, past_key_values)
        for layer in self.layers:
            hidden = layer(hidden, tables, mask, past_key_values, seen, position_ids=position_ids, **kwargs)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden), past_key_values=past_key_values)


class SmallDecoderForRegression(SmallDecoderPreTrainedModel):
    """One real number a sequence, told from its last token."""

    def __init__(self, config: SmallDecoderConfig) -> None:
        super().__init__(config)
        self.model = SmallDecoderModel(config)
        self.head = nn.Sequential(
            nn.Linear(config.hidden_size, config.hidden_size),
            ACT2FN[config.hidden_act],
            nn.Linear(config.hidden_size, 1),
        )
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        ends: Tensor | None = None,  # [batch], where each sequence's last token stands; no mask is needed behind it
        labels: Tensor | None = None,  # [batch]
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        hidden = self.model(input_ids, **kwargs).last_hidden_state
        if ends is None:
            ends = hidden.new_full(hidden.shape[:1], hidden.shape[1] - 1, dtype=torch.long)
        last = hidden.gather(1, ends[:, None, None].expand(-1, 1, hidden.shape[-1]))[:, 0]
        numbers = self.head(last)[:, 0]
        loss = None if labels is None else (numbers - labels).square().mean()
        return SequenceClassifierOutput(loss=loss, logits=numbers)


class SmallDecoderForCausalLM(SmallDecoderPreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """The decoder with a head that names the next token."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: SmallDecoderConfig) -> None:
        super().__init__(config)
        self.model = SmallDecoderModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,  # [batch, tokens], the inputs themselves; -100 where nothing is asked
        logits_to_keep: int = 0,  # how many of the last tokens get logits; 0 is all
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        options = {name: kwargs.pop(name) for name in ("num_items_in_batch",) if name in kwargs}
        outputs = self.model(input_ids, attention_mask, **kwargs)
        logits = self.lm_head(outputs.last_hidden_state[:, -logits_to_keep:])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **options)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=outputs.past_key_values)
