"""The sizes and choices of a small decoder."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from lengthwise.errors import require
from lengthwise.models.trained_alibi import check_factors

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
    check_factors(config)
    known = config.positions in POSITIONS
    require(known, f"a small_decoder has no positions {config.positions!r}; take one of {', '.join(POSITIONS)}")
    turned = config.positions != "rope" or config.head_dim % 2 == 0
    require(turned, f"rope needs an even head_dim, not {config.head_dim}: it is rotated in pairs")
    enough = config.positions != "learned" or config.learned_positions >= config.max_position_embeddings
    rows, trained = config.learned_positions, config.max_position_embeddings
    require(enough, f"{rows} learned_positions are fewer than the training length {trained}; give at least as many")
