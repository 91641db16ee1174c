"""A small decoder to train from scratch: Output Alignment's subject for synthetic tasks, and a language model of any size.

    x -> x + attention(norm(x)),   x -> x + W_2 act(W_1 norm(x)),   LayerNorm at the end
    logit(i, j) = q_i . k_j / sqrt(d) + bias_h(j - i),   j <= i

`alibi` fills the bias with -2^(-8h/H) |j - i|, `rope` rotates q and k, `learned` and `nope` leave both as they are. Slots that
are filled at run time come from `lengthwise.extend`.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast, SequenceClassifierOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.utils.generic import can_return_tuple

from lengthwise.common.laws import alibi_slopes
from lengthwise.errors import BadInput, require
from lengthwise.models.family_base import FamilyAttention, FamilyModel, check_alibi_factors, eager_attention_forward

FAMILY = "small_decoder"
POSITIONS = ("learned", "alibi", "rope", "nope")


class SmallDecoderConfig(PreTrainedConfig):  # type: ignore[misc]
    """Sized for a few bits or letters; `positions` is one of POSITIONS."""

    model_type = FAMILY

    vocab_size: int = 5
    hidden_size: int = 64
    intermediate_size: int = 256
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    head_dim: int | None = None  # None: hidden_size / num_attention_heads
    max_position_embeddings: int = 12  # the training length; longer inputs are not refused
    learned_positions: int = 64  # rows of the table of learned positions, which inputs cannot be longer than
    positions: str = "nope"
    alibi_factors: list[list[float]] | None = None  # [layers][heads], what a baked temperature multiplies the slopes by
    rope_parameters: dict[str, Any] | None = None
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    pad_token_id: int | None = None
    tie_word_embeddings: bool = True
    use_cache: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if self.rope_parameters is None:
            self.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
        if self.head_dim is None:
            whole = self.num_attention_heads > 0 and self.hidden_size % self.num_attention_heads == 0
            require(whole, f"{self.num_attention_heads} heads do not divide a width of {self.hidden_size}; give head_dim")
            self.head_dim = self.hidden_size // self.num_attention_heads
        super().__post_init__(**kwargs)
        _check(self)


def _check(config: Any) -> None:
    check_alibi_factors(config)
    known = config.positions in POSITIONS
    require(known, f"a small_decoder has no positions {config.positions!r}; take one of {', '.join(POSITIONS)}")
    turned = config.positions != "rope" or config.head_dim % 2 == 0
    require(turned, f"rope needs an even head_dim, not {config.head_dim}: it is rotated in pairs")
    enough = config.positions != "learned" or config.learned_positions >= config.max_position_embeddings
    rows, trained = config.learned_positions, config.max_position_embeddings
    require(enough, f"{rows} learned_positions are fewer than the training length {trained}; give at least as many")


class SmallDecoderAttention(FamilyAttention):
    is_causal = True

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__(config, layer_idx, alibi_slopes(config.num_attention_heads))
        self.scaling = config.head_dim**-0.5
        inner = config.num_attention_heads * config.head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(config.hidden_size, inner) for _ in range(3))
        self.o_proj = nn.Linear(inner, config.hidden_size)

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
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        kwargs |= {"dropout": 0.0, "scaling": self.scaling, **self.bias_arguments(query, key, past_seen_tokens)}
        mixed, _ = attend(self, query, key, value, attention_mask, **kwargs)
        return self.o_proj(mixed.flatten(2))  # type: ignore[no-any-return]


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


class SmallDecoderPreTrainedModel(FamilyModel):
    config_class = SmallDecoderConfig
    _no_split_modules = ("SmallDecoderLayer",)


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


def register() -> None:
    """Tells transformers' Auto classes of the family. Only `lengthwise.models.load` does, when it meets such a checkpoint."""
    transformers.AutoConfig.register(FAMILY, SmallDecoderConfig, exist_ok=True)
    transformers.AutoModel.register(SmallDecoderConfig, SmallDecoderModel, exist_ok=True)
    transformers.AutoModelForCausalLM.register(SmallDecoderConfig, SmallDecoderForCausalLM, exist_ok=True)
