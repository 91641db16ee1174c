"""The sizes and choices of a GAU-alpha model."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from lengthwise.errors import require
from lengthwise.models.trained_alibi import check_factors

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
    check_factors(config)
    even = config.head_dim > 0 and config.head_dim % 2 == 0
    require(even, f"a gau_alpha model needs an even head_dim, not {config.head_dim}: it is rotated in pairs")
    positive = config.cos_scale is None or 0 < config.cos_scale < math.inf
    require(positive, f"cos_scale must be above 0, not {config.cos_scale}; leave it out for plain attention")
    kind = (config.rope_parameters or {}).get("rope_type", "default")
    require(kind == "default", f"a gau_alpha model has no rope_type {kind!r}; load it plain and use lengthwise.extend")
    # Its temperature multiplies the queries, which would leave the bias as it is
    plain = config.positions != "alibi" or config.normalisation == "softmax"
    require(plain, f"alibi cannot be trained with {config.normalisation}; use softmax, and the law in lengthwise.extend")
