"""Where a method is put on a model: its rotation into the rotary embedding, everything else into the attention layers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from lengthwise.errors import BadInput, require
from lengthwise.methods.base import FrequencyRotation, acts_on, follows_length, method_name
from lengthwise.methods.slots import Slots
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.attention_interface import NAME
from lengthwise.models.bias import no_bias, table_instead_of_matrix
from lengthwise.models.layer import Layer, Observer, active_slots
from lengthwise.models.patches import IMPLEMENTATION, Patches, suspended, value_before_patches
from lengthwise.models.rotary import (
    Rotary,
    changed_rotation,
    formula_of,
    length_dependent,
    no_rotation,
    rotary_of,
    rotation_in_laps,
    turns_halves,
)
from lengthwise.models.rotary_proof import rotated_parts
from lengthwise.models.state import LAYER
from lengthwise.models.train_length import SWITCH

# In laps of so many tokens and more, angles are known to 0.001 after millions of tokens
LAP = 4096


def install(
    patches: Patches,
    model: nn.Module,
    anatomy: Anatomy,
    slots: Slots,
    implementation: str = "auto",
    observer: Observer | None = None,
    exact: bool = True,
) -> bool:
    """Patch the model so that its attention solves the equation with these slots.

    True where the attention function then rotates queries and keys.
    """
    rotary = _rotary_to_take_over(anatomy, slots)
    parts = _take_over(patches, model, anatomy, slots, rotary)
    rotating = parts is not None
    shared: dict[str, Any] = {"train_length": anatomy.train_length, "implementation": implementation, "read": {}}
    # Experts have room for so many tokens, padding among them: it must go where it goes in the stock model. A measurement
    # leaves it out
    routes_padding = anatomy.family == SWITCH and not anatomy.causal and observer is None
    layers = zip(anatomy.layers, anatomy.bias_owners, anatomy.layer_types, strict=True)
    for index, (module, owner, kind) in enumerate(layers):
        outer = LAYER.on(module)
        rotates = rotary is not None and rotary.serves(kind)
        acts = slots.rotation is None or (rotates and acts_on(slots.rotation, index))
        here = slots if acts else slots.without(slots.rotation)
        config: Any = getattr(module, "config", anatomy.stack.config)
        layer = Layer(
            index=index,
            slots=here if outer is None else outer.slots.joined_with(here),
            installed=slots if outer is None else outer.installed.joined_with(slots),
            stock=outer.stock if outer is not None else value_before_patches(config.__dict__, IMPLEMENTATION) or "eager",
            bias_owner=owner,
            empties_padding=module not in anatomy.cross and not routes_padding,
            observer=observer if observer is not None or outer is None else outer.observer,
            exact=exact and (outer is None or outer.exact),
            rotary=rotary if rotating and rotates else None if outer is None else outer.rotary,
            rotated_part=(parts or {}).get(module, outer.rotated_part if outer is not None else "all of it"),
            turns_halves=turns_halves(formula_of(module)) if rotating else outer is not None and outer.turns_halves,
            **shared,
        )
        patches.set(module.__dict__, LAYER.key, layer)
        if owner is module and "compute_bias" not in module.__dict__:
            patches.set(module.__dict__, "compute_bias", table_instead_of_matrix(module))
        if module in anatomy.cross:
            # A layer without a bias fills a matrix with zeros; one with a bias asks for it
            patches.set(module.__dict__, "has_relative_attention_bias", True)
            patches.set(module.__dict__, "compute_bias", no_bias)
    for config in anatomy.configs:
        patches.set_shared(config.__dict__, IMPLEMENTATION, NAME)
    return rotating


def _take_over(
    patches: Patches, model: nn.Module, anatomy: Anatomy, slots: Slots, rotary: Rotary | None
) -> dict[nn.Module, str] | None:
    """Put the method's frequencies in the place of the model's own; or, where that is not enough, let the model rotate nothing.

    Then what each attention module rotated before, one of `rotary.PARTS`; else None.
    """
    if (module := length_dependent(anatomy)) is not None:
        patches.set(module.__dict__, "forward", changed_rotation(module))
    if rotary is None:
        return None
    acts_everywhere = all(acts_on(slots.rotation, index) for index in range(len(anatomy.layers)))
    # A key's rotation depends on the row that reads it, or on the layer
    if slots.similarity is not None or slots.parts is not None or follows_length(slots.rotation) or not acts_everywhere:
        method = slots.similarity if slots.rotation is None else slots.rotation
        with suspended(model):
            parts = rotated_parts(patches, anatomy, rotary, method_name(method))
        forward = no_rotation if rotary.lap is None else rotation_in_laps
        patches.set(rotary.module.__dict__, "forward", forward(rotary))
        return parts
    if slots.frequencies is not None:
        frequencies = partial(_frequencies, slots.frequencies, rotary, anatomy.train_length)
        patches.set(rotary.module.__dict__, "forward", changed_rotation(rotary.module, frequencies))
    return None


def refuse_copies(patches: Patches, anatomy: Anatomy) -> None:
    """A copy or a pickle would carry patches that nothing undoes."""

    def refuse(_: Any) -> Any:
        advice = "leave `extend` first, or take its state_dict"
        raise BadInput(f"this model is extended, and can be neither copied nor pickled (torch.save) before that ends; {advice}")

    for module in (anatomy.stack, *anatomy.layers):
        patches.set(module.__dict__, "__reduce_ex__", refuse)


def _frequencies(method: FrequencyRotation, rotary: Rotary, train_length: int) -> dict[str, Tensor]:
    return {rotary.buffer: method.frequencies(rotary.trained, train_length)}


def _rotary_to_take_over(anatomy: Anatomy, slots: Slots) -> Rotary | None:
    """The model's rotary embedding, where a method has to see queries and keys before they are rotated; else None."""
    if slots.rotation is not None:
        rotary, outer = rotary_of(anatomy, method_name(slots.rotation)), active_slots(anatomy)
        similarity = slots.similarity or (outer and outer.similarity)
        _refuse_by_type(anatomy, rotary, slots.similarity)
        in_line = slots.rolling is not None and slots.rolling.in_line and similarity is None
        return replace(rotary, lap=max(LAP, anatomy.train_length)) if in_line else rotary
    if slots.similarity is not None and anatomy.rotates:
        outer = active_slots(anatomy)
        if outer is not None and outer.rotation is not None:
            both = f"{method_name(outer.rotation)} and {method_name(slots.similarity)}"
            raise BadInput(f"{both} must meet in one spec, joined by +: the keys of the first are rotated already")
        rotary = rotary_of(anatomy, method_name(slots.similarity))
        _refuse_by_type(anatomy, rotary, slots.similarity)
        return rotary
    return None


def _refuse_by_type(anatomy: Anatomy, rotary: Rotary, similarity: object) -> None:
    """Raise where a similarity would meet keys that are rotated already: those of the layers of another type."""
    name = type(anatomy.stack).__name__
    alone = similarity is None or rotary.layer_type is None
    require(alone, f"{name} has frequencies for types of layers; {method_name(similarity)} cannot be used on it")
