"""What lengthwise must know of a loaded model: which stack it extends, its attention layers, and who owns their bias.

Encoder-decoders are extended in the encoder, where the long input is read; decoders and encoders in their only stack.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.errors import BadInput, require
from lengthwise.methods.hub import ALIGNMENT
from lengthwise.models.train_length import GIVEN, T5_FAMILIES, TrainLength, train_length_of

FREQUENCIES = "inv_freq"  # what a rotary embedding calls its buffer
FULL = "full_attention"  # what configs call layers without a window; Gemma 3 and others have frequencies for each type of layer
MOST_TOKENS = 2**31  # beyond all inputs, and few enough for arithmetic of 64 bits
# What families call their embedding of absolute positions
TABLES = ("wpe", "embed_positions", "position_embeddings")


@dataclass(frozen=True)
class Anatomy:
    """One model's stack of self-attention layers."""

    family: str  # transformers' model_type
    stack: nn.Module  # the module whose forward runs all layers
    layers: tuple[nn.Module, ...]  # attention modules, first to last
    bias_owners: tuple[nn.Module | None, ...]  # for each layer, the attention module that holds its learned bias
    heads: int
    key_size: int
    trained: TrainLength
    causal: bool
    cross: tuple[nn.Module, ...] = ()  # those of the layers that read another stack

    @property
    def train_length(self) -> int:
        return self.trained.tokens

    @property
    def rotates(self) -> bool:
        """Whether positions are told by rotating queries and keys."""
        return getattr(self.stack, "rotary_emb", None) is not None

    @property
    def facts(self) -> dict[str, Any]:
        """What a method may take from the model when its spec leaves it out."""
        config, buffers = self.stack.config, getattr(getattr(self.stack, "rotary_emb", None), "_buffers", {})
        frequencies = buffers.get(FREQUENCIES, buffers.get(f"{FULL}_{FREQUENCIES}"))
        facts: dict[str, Any] = {
            "train_length": self.train_length,
            "layers": len(self.layers),
            "heads": self.heads,
            "key_heads": int(getattr(config, "num_key_value_heads", None) or self.heads),
            "key_size": self.key_size,
            # GPT-NeoX and others rotate a part of each key only
            "rotary_size": self.key_size if frequencies is None else 2 * len(frequencies),
        }
        beside = Path(str(getattr(config, "_name_or_path", "") or "."), ALIGNMENT)
        if getattr(config, "_name_or_path", "") and beside.is_file():
            facts["alignment"] = str(beside)
        rope = getattr(config, "rope_parameters", None)
        rope = rope if isinstance(rope, dict) else {}
        base = (rope.get(FULL) or rope).get("rope_theta")
        return facts if base is None else {**facts, "base": float(base)}

    @property
    def layer_types(self) -> list[str | None]:
        """What the config calls each layer, where it tells."""
        kinds = getattr(self.stack.config, "layer_types", None) or ()
        return [*kinds] if len(kinds) == len(self.layers) else [None] * len(self.layers)

    @property
    def windows(self) -> list[int | None]:
        """How many keys the model's own mask lets a row of each layer see; None for all."""
        return [own_window(layer, getattr(layer, "config", self.stack.config)) for layer in self.layers]

    @property
    def configs(self) -> list[Any]:
        """The configs that tell the layers which attention function to take, each once."""
        holders = (self.stack, *self.layers)
        return list({id(holder.config): holder.config for holder in holders if hasattr(holder, "config")}.values())

    @property
    def position_table(self) -> nn.Embedding | None:
        """The embedding of absolute positions, of families that have one: no input can be longer."""
        named = ((name.rsplit(".", 1)[-1], module) for name, module in self.stack.named_modules())
        return next((module for name, module in named if name in TABLES and isinstance(module, nn.Embedding)), None)

    @property
    def has_unread_bias(self) -> bool:
        """Whether its attention takes a bias of positions that is neither T5's nor of a model of lengthwise's own."""
        layer = type(self.layers[0])
        if self.family in T5_FAMILIES or layer.__module__.startswith("lengthwise."):
            return False
        eager = sys.modules[layer.__module__].__dict__.get("eager_attention_forward", layer.forward)
        return any("position_bias" in inspect.signature(taker).parameters for taker in (layer.forward, eager))


def unwrapped(model: nn.Module) -> Any:
    """The transformers model inside compile, data-parallel and PEFT wrappers."""
    inner: Any = getattr(model, "_orig_mod", model)
    inner = inner if hasattr(inner, "config") else getattr(inner, "module", inner)
    return inner.get_base_model() if hasattr(inner, "get_base_model") else inner


def has_encoder(model: nn.Module) -> bool:
    """Whether an encoder reads and a decoder tells."""
    return bool(getattr(unwrapped(model).config, "is_encoder_decoder", False))


def vocabulary(model: nn.Module) -> int:
    """How many tokens the model knows."""
    return int(unwrapped(model).get_input_embeddings().weight.shape[0])


def stack_of(model: nn.Module) -> Any:
    """The stack that is extended, the same whether the model is given, or its base, or the stack itself."""
    inner = unwrapped(model)
    if not hasattr(inner, "config") or not hasattr(inner.config, "model_type"):
        raise BadInput(f"{type(model).__name__} is not a transformers model: it has no config with a model_type")
    stack = _stack(inner)
    require(
        hasattr(stack, "config"),
        f"{type(stack).__name__} has no config, which tells it how to compute attention: no method can reach it",
    )
    return stack


def anatomy_of(model: nn.Module, train_length: int | None = None) -> Anatomy:
    """Find the stack to extend and its attention layers, or say why this model cannot be extended."""
    inner, stack = unwrapped(model), stack_of(model)
    require(bool(attention_layers(stack)), f"{type(inner).__name__} has no attention layer that lengthwise can find")
    return stack_anatomy(stack, str(inner.config.model_type), train_length)


def stack_anatomy(stack: Any, family: str, train_length: int | None = None) -> Anatomy:
    """The anatomy of one stack of layers."""
    config, layers, cross = stack.config, attention_layers(stack), _cross_layers(stack)
    heads = int(getattr(config, "num_attention_heads", 0) or getattr(config, "num_heads", 0))
    require(heads > 0, f"{type(stack).__name__} has a config without attention heads, and nothing that a method could act on")
    trained = train_length_of(config, family) if train_length is None else TrainLength(train_length, GIVEN)
    right = f"{trained.tokens}; give the right one (--train-length)"
    require(trained.tokens > 1, f"train_length must be above 1 token, not {right}")
    require(trained.tokens < MOST_TOKENS, f"train_length must be below {MOST_TOKENS} tokens, not {right}")
    return Anatomy(
        family=family,
        stack=stack,
        layers=layers,
        bias_owners=_bias_owners(layers, cross),
        heads=heads,
        key_size=_key_size(config, heads),
        trained=trained,
        causal=bool(getattr(layers[0], "is_causal", False)),
        cross=cross,
    )


def _stack(model: Any) -> Any:
    """The innermost transformers model that runs the layers; the encoder where there are two."""
    if getattr(model.config, "is_encoder_decoder", False) or model.config.model_type in T5_FAMILIES:
        # T5's classification heads keep the flag but nest the stacks one level down
        for module in model.modules():
            if hasattr(module, "encoder") and hasattr(module.encoder, "config"):
                return module.encoder
        return model.get_encoder()
    # Llama 4's text model is not where its class says; OPT's causal model calls the decoder in its base model directly
    base = getattr(model, "model", model) if model.base_model is model else model.base_model
    # What sees and reads: the reader
    reader = getattr(base, "language_model", None)
    if hasattr(reader, "config"):
        return reader
    inner = getattr(base, "decoder", None)
    if hasattr(inner, "config") and not hasattr(base, "encoder"):
        return inner
    return base if hasattr(base, "config") else model.base_model


def attention_layers(stack: nn.Module, cross: bool = False) -> tuple[nn.Module, ...]:
    """Innermost modules called ...Attention; wrappers such as BertAttention around BertSelfAttention are passed over.

    Those between two stacks are left out but for `cross`.
    """
    named = [module for module in stack.modules() if type(module).__name__.endswith("Attention")]
    inner = [m for m in named if not any(child in named for child in m.modules() if child is not m)]
    return tuple(m for m in inner if cross or "Cross" not in type(m).__name__)


def _cross_layers(stack: nn.Module) -> tuple[nn.Module, ...]:
    """T5's attention to an encoder is of the class of its self-attention; only what it stands in tells."""
    around = [module for module in stack.modules() if type(module).__name__.endswith("CrossAttention")]
    return tuple(layer for module in around for layer in attention_layers(module))


def _bias_owners(layers: tuple[nn.Module, ...], cross: tuple[nn.Module, ...]) -> tuple[nn.Module | None, ...]:
    """For each layer itself, where it has a bias, or the last before it that has one; none where it reads another stack."""
    owners: list[nn.Module | None] = []
    for layer in layers:
        holds = getattr(layer, "has_relative_attention_bias", False) and layer not in cross
        owners.append(layer if holds else owners[-1] if owners else None)
    return tuple(None if layer in cross else owner for layer, owner in zip(layers, owners, strict=True))


def own_window(layer: Any, config: Any) -> int | None:
    """Some layers of full attention carry the window of the others; the config's list of layers knows. 0 is no window."""
    kinds, index = getattr(config, "layer_types", None), getattr(layer, "layer_idx", None)
    if kinds and index is not None:
        slides = kinds[index] == "sliding_attention"
    else:
        slides = getattr(layer, "is_sliding", getattr(config, "use_sliding_window", True))
    window: int | None = getattr(layer, "sliding_window", getattr(config, "sliding_window", None))
    return (window or None) if slides else None


def _key_size(config: Any, heads: int) -> int:
    # DeepSeek's head_dim counts only what is rotated
    parts: list[Any] = [getattr(config, name, None) for name in ("qk_nope_head_dim", "qk_rope_head_dim")]
    whole = None if None in parts else sum(parts)
    try:
        own = getattr(config, "head_dim", None)
    except RuntimeError:
        # transformers tells no one number where layers differ
        differ = f"the layers of this {config.model_type} have keys of different sizes, and methods are told one"
        raise BadInput(f"{differ}: it cannot be extended") from None
    sizes = (getattr(config, "qk_head_dim", None), whole, getattr(config, "d_kv", None), own)
    return int(next(filter(None, sizes), None) or config.hidden_size // heads)
