"""Whether a model can be extended at all, and whether a method suits it: every refusal that needs no forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from lengthwise.errors import BadInput, require
from lengthwise.methods.base import check_fits, fingerprint_of, method_name
from lengthwise.methods.recipe import MadeFor, Recipe
from lengthwise.methods.slots import Slots
from lengthwise.methods.spec import Spec, methods_of
from lengthwise.models.anatomy import Anatomy, attention_layers, unwrapped, vocabulary
from lengthwise.models.fingerprint import check_fingerprint

Method = str | object | Sequence[object]  # a spec, a method, or several of both


def suitable_slots(anatomy: Anatomy, method: Method, force: bool = False) -> Slots:
    """The slots that `method` fills, after checking that it suits this model; `force` accepts one that was made for another."""
    methods = _each_method(anatomy, method)
    for single in methods:
        if (fingerprint := fingerprint_of(single)) and not force:
            chosen = isinstance(single, MadeFor)
            words = ("recipe", "ask `recommend` about this model") if chosen else ("alignment", "calibrate this model")
            check_fingerprint(anatomy, fingerprint, *words)
        check_fits(single, len(anatomy.layers), anatomy.heads)
    slots = Slots.of(single for single in methods if not isinstance(single, MadeFor))
    if slots.similarity is not None and not force:
        trained = getattr(anatomy.stack.config, "cos_scale", None)
        why = "was not trained with it" if trained is None else f"has its own already (scale {trained:g})"
        raise BadInput(
            f"{method_name(slots.similarity)} replaces the similarity of queries and keys, and this {anatomy.family} model "
            f"{why}; train one with it, or pass force=True (--force of evaluate, reach, bake and export) to see what it does"
        )
    if slots.bias is not None and any(owner is not None for owner in anatomy.bias_owners):
        raise BadInput(f"{method_name(slots.bias)} fills the bias slot, and so does the learned bias of this {anatomy.family}")
    if slots.segmented is not None:
        what = f"{method_name(slots.segmented)} splits the heads of a causal model"
        require(anatomy.causal, f"{what}, and this {anatomy.family} reads in both directions; leave it out")
        require(anatomy.heads > 1, f"{what}, and this {anatomy.family} has one; leave it out")
    return slots


def _each_method(anatomy: Anatomy, method: Method) -> list[object]:
    if isinstance(method, str | Spec):
        return methods_of(method, anatomy.facts)
    if isinstance(method, Recipe):
        method = method.installs
    if isinstance(method, (list, tuple)):
        return [single for part in method for single in _each_method(anatomy, part)]
    if isinstance(method, type):
        raise BadInput(f"{method.__name__} is a class of methods; give one of them, {method.__name__}(...)")
    # It has a function called narrow, and would pass for a method
    require(not isinstance(method, Tensor), "a method is a spec or an object of a method's class, not a tensor")
    return [method]


def refuse_unreachable(model: nn.Module, anatomy: Anatomy) -> None:
    """Raise for families whose attention no function of ours can take over."""
    stack, layer = type(anatomy.stack).__name__, type(anatomy.layers[0]).__name__
    can_set = getattr(anatomy.stack, "_can_set_attn_implementation", None)
    itself = f"{stack} computes attention itself instead of through transformers' AttentionInterface"
    require(can_set is None or can_set(), f"{itself}, so no method can reach its {len(anatomy.layers)} layers")
    own_mask = hasattr(anatomy.layers[0], "prepare_dynamic_mask")
    require(not own_mask, f"{layer} makes a mask of its own out of its values: no method can reach it")
    chooses = f"{layer} chooses the keys that a row sees by an indexer of its own: no method can reach it"
    require(not any(hasattr(module, "indexer") for module in anatomy.layers), chooses)
    biased = f"{layer} adds a position_bias of its own to the logits, which lengthwise reads of T5's families only"
    require(not anatomy.has_unread_bias, f"{biased}: {stack} computes attention in a way that no method can reach")
    # BART's decoder reads the config of its encoder, and would be handed our function with it
    configs = {id(config) for config in anatomy.configs}
    for module in attention_layers(unwrapped(model), cross=True):
        if module not in anatomy.layers and id(getattr(module, "config", None)) in configs:
            raise BadInput(
                f"the encoder and the decoder of this {anatomy.family} share one config, which says how both of them compute "
                "attention: no method can reach the one without the other"
            )


def check_can_answer(model: nn.Module) -> None:
    """Refuse a model that cannot generate text."""
    inner = unwrapped(model)
    can = getattr(inner, "can_generate", None)
    require(can is not None and can(), f"{type(inner).__name__} cannot write answers; give an encoder-decoder or a decoder")
    if inner.config.is_encoder_decoder:
        settings = inner.generation_config
        start = settings.bos_token_id if settings.decoder_start_token_id is None else settings.decoder_start_token_id
        begins = start is not None and 0 <= start < vocabulary(inner)
        require(begins, f"the model's answers begin with token {start}, which it does not know: see decoder_start_token_id")


def refuse_past_the_table(anatomy: Anatomy, tokens: int, positions: Any = None) -> None:
    """Raise for inputs longer than the model's table of absolute positions, where it has one."""
    if (table := anatomy.position_table) is None:
        return
    # BART and OPT begin after an offset, RoBERTa after its padding index
    held = table.num_embeddings - int(getattr(table, "offset", 0))
    room = held if table.padding_idx is None else held - table.padding_idx - 1
    if tokens <= room:
        return
    # Packed sequences begin again
    if isinstance(positions, Tensor) and int(positions.max()) < held:
        return
    raise BadInput(
        f"{type(anatomy.stack).__name__} has a table of {room} absolute positions and was given {tokens} tokens: "
        "no method takes a model past its table"
    )
