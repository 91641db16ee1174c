"""GAU-alpha, Entropy Invariance's subject, which transformers does not have: an encoder of gated attention units.

    u, v, z = silu(x W_in);   q = gamma_q z,  k = gamma_k z;   unit(x) = (u * (A v)) W_out       Su et al. 2022
    x -> rms(x + unit(x)),   rms(x) = x / sqrt(mean(x^2) + eps),   after every unit and after the embeddings

A is the softmax of one head over all tokens. No biases, no gains; the head is the token embedding. Trained with CosScale, q and
k have length 1 before they are rotated, and S stands in the place of 1/sqrt(d). Trained with a temperature, g(n) multiplies the
queries; n counts the real tokens of a sequence:

    softmax_plus   g(n) = ln n / ln 512
    infoscale      g(n) = sqrt((1 - n^(-2/d)) / (1 - n_train^(-2/d)))                            both also below n_train

Methods for longer inputs come from `lengthwise.extend`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.generic import can_return_tuple

from lengthwise.errors import BadInput, require
from lengthwise.models.family_base import FamilyAttention, FamilyModel, check_alibi_factors, eager_attention_forward

FAMILY = "gau_alpha"
NORMALISATIONS = ("softmax", "softmax_plus", "infoscale")
POSITIONS = ("rope", "alibi", "nope")


class GAUAlphaConfig(PreTrainedConfig):  # type: ignore[misc]
    """The released model's sizes; `normalisation`, `cos_scale` and `positions` say what it was trained with."""

    model_type = FAMILY
    # As the released configuration spells them
    attribute_map: ClassVar[dict[str, str]] = {"attention_key_size": "head_dim", "normalization": "normalisation"}

    vocab_size: int = 12000
    hidden_size: int = 768
    intermediate_size: int = 1536  # of the values and their gate
    head_dim: int = 128  # of queries and keys
    num_attention_heads: int = 1
    num_hidden_layers: int = 24
    type_vocab_size: int = 2
    max_position_embeddings: int = 512  # the training length; longer inputs are not refused
    rope_parameters: dict[str, Any] | None = None
    normalisation: str = "softmax"
    cos_scale: float | None = None  # S of CosScale; None is q.k / sqrt(head_dim)
    positions: str = "rope"
    alibi_slope: float = 2.0**-8  # ALiBi's own for one head
    alibi_factors: list[list[float]] | None = None  # [layers][heads], what a baked temperature multiplies the slopes by
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    pad_token_id: int | None = 0
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if self.rope_parameters is None:
            self.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
        super().__post_init__(**kwargs)
        _check(self)


def _check(config: Any) -> None:
    for name, known in (("normalisation", NORMALISATIONS), ("positions", POSITIONS)):
        value = getattr(config, name)
        require(value in known, f"a gau_alpha model has no {name} {value!r}; take one of {', '.join(known)}")
    require(config.num_attention_heads == 1, f"a gau_alpha layer has one head, not {config.num_attention_heads}")
    check_alibi_factors(config)
    even = config.head_dim > 0 and config.head_dim % 2 == 0
    require(even, f"a gau_alpha model needs an even head_dim, not {config.head_dim}: it is rotated in pairs")
    positive = config.cos_scale is None or 0 < config.cos_scale < math.inf
    require(positive, f"cos_scale must be above 0, not {config.cos_scale}; leave it out for plain attention")
    kind = (config.rope_parameters or {}).get("rope_type", "default")
    require(kind == "default", f"a gau_alpha model has no rope_type {kind!r}; load it plain and use lengthwise.extend")
    # Its temperature multiplies the queries, which would leave the bias as it is
    plain = config.positions != "alibi" or config.normalisation == "softmax"
    require(plain, f"alibi cannot be trained with {config.normalisation}; use softmax, and the law in lengthwise.extend")


class GAUAlphaRotaryEmbedding(nn.Module):
    """cos and sin of every position, each number twice: components 2i and 2i + 1 make a pair, unlike Llama's halves.

    (a, b) -> (a cos - b sin, b cos + a sin),   at angle p theta_i,   theta_i = base^(-2i/d)
    """

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


class GAUAlphaAttention(FamilyAttention):
    """One gated attention unit, without the norm and the residual around it."""

    is_causal = False

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__(config, layer_idx, [config.alibi_slope])
        self.sizes = [config.intermediate_size, config.intermediate_size, config.head_dim]
        self.inward = nn.Linear(config.hidden_size, sum(self.sizes), bias=False)
        self.outward = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.gamma_q = nn.Parameter(torch.ones(config.head_dim))
        self.gamma_k = nn.Parameter(torch.ones(config.head_dim))
        self.scaling = config.head_dim**-0.5 if config.cos_scale is None else config.cos_scale

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
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        query, key = query.to(value.dtype), key.to(value.dtype)
        kwargs |= {"dropout": dropout, "scaling": self.scaling, "is_causal": False, **self.bias_arguments(query, key)}
        mixed, _ = attend(self, query, key, value[:, None], attention_mask, **kwargs)
        return self.outward(gate * mixed.flatten(2))  # type: ignore[no-any-return]

    def _queries_and_keys(self, shared: Tensor, tables: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        query, key = shared * self.gamma_q, shared * self.gamma_k
        if self.config.cos_scale is not None:
            query, key = (nn.functional.normalize(states.float(), dim=-1).to(states.dtype) for states in (query, key))
        return (query, key) if tables is None else apply_rotary_pos_emb(query, key, *tables)


def inverse_temperature(config: Any, tokens: Tensor) -> Tensor | None:
    """g at `tokens` [batch], the number of real tokens of each sequence; None where the model was trained without."""
    n = tokens.double().clamp_min(2)
    if config.normalisation == "softmax_plus":
        return (n.log() / math.log(512)).float()
    if config.normalisation == "infoscale":
        power, trained = -2 / int(config.head_dim), float(config.max_position_embeddings)
        return torch.sqrt((1 - n**power) / (1 - trained**power)).float()
    return None


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


class GAUAlphaPreTrainedModel(FamilyModel):
    config_class = GAUAlphaConfig
    _no_split_modules = ("GAUAlphaLayer",)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, GAUAlphaAttention):
            init.ones_(module.gamma_q)
            init.ones_(module.gamma_k)


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


def register() -> None:
    """Tells transformers' Auto classes of the family. Only `lengthwise.models.load` does, when it meets such a checkpoint."""
    transformers.AutoConfig.register(FAMILY, GAUAlphaConfig, exist_ok=True)
    transformers.AutoModelForMaskedLM.register(GAUAlphaConfig, GAUAlphaForMaskedLM, exist_ok=True)
