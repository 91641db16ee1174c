"""Caches of keys under a method: which may be used, and which are made to keep only what a rolling method still sees.

A cache holds keys as a rotation or a similarity left them: one that was begun without the method cannot be continued with it,
nor the other way round, inside `extend` or after it. Temperatures, biases and windows leave keys as they are. StreamingLLM sees
a few sinks and a window: keys between the two are dropped, and a generation of any length takes the memory of one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from lengthwise.errors import BadInput, require
from lengthwise.methods.base import SinksAndWindow, method_name
from lengthwise.methods.slots import Slots
from lengthwise.models.anatomy import own_window
from lengthwise.models.layer import Layer
from lengthwise.models.patches import ActivePatches
from lengthwise.models.rolling_layer import RollingLayer
from lengthwise.models.rotate import turned_on
from lengthwise.models.state import FILLED, LAYER, MASK

PLAIN = (DynamicLayer, DynamicSlidingWindowLayer)


@dataclass
class FilledWith:
    """Which method placed the keys of a cache, and whether it is still on the model."""

    method: str
    patches: ActivePatches


def admit(cache: Any, slots: Slots, layers: Sequence[nn.Module], mask: Any, patches: ActivePatches) -> None:
    """Let a fresh cache of these attention layers in, and make it roll if it can; refuse one filled under another method."""
    cache = own_keys(cache)
    method = slots.placing
    # A bias goes by how far a key was, and a cache that rolls draws its sinks near
    earlier, rolling = FILLED.on(cache), slots.rolling if slots.bias is None else None
    filled = "" if earlier is None else earlier.method
    # Before the length is asked for, which a static cache keeps on the GPU
    if filled != method or rolling is not None:
        _check(cache, filled, method, rolling, layers, mask)
    if slots.bias is not None:
        name = method_name(slots.bias)
        require(not _rolls(cache), f"this cache drops keys, and {name} counts the distance to each; begin one under both")
    if rolling is not None:
        _give_turns(cache, layers)
    if method:
        _refuse_keys_without_method(cache, FilledWith(method, patches))
    elif earlier is not None:
        _accept_all_keys(cache)


def own_keys(cache: Any) -> Any:
    # Bert's kind of decoder keeps the keys of cross-attention beside its own
    return getattr(cache, "self_attention_cache", cache)


def mark_filled(cache: Any, slots: Slots, patches: ActivePatches, where: str = "") -> None:
    """Note which method placed the keys of a cache that the model made itself, and so was not admitted, and where."""
    if slots.placing and FILLED.on(own_keys(cache)) is None:
        _refuse_keys_without_method(own_keys(cache), FilledWith(slots.placing + where, patches))


def _check(cache: Any, filled: str, method: str, rolling: Any, layers: Sequence[nn.Module], mask: Any) -> None:
    # Rows of a padded batch have their sinks at different places: there all keys are kept
    padded = rolling is not None and _is_padded(mask)
    if cache.get_seq_length() > 0:
        if filled != method:
            how = f"with {filled}" if filled else f"without {method}"
            raise BadInput(f"this cache was filled {how}, so its keys stand elsewhere; begin one inside `extend`")
        pushed = "this cache drops its oldest keys, and padding would push out real ones"
        require(not (_rolls(cache) and padded), f"{pushed}; begin a new one, or pad before its first token")
        return
    if _rolls(cache):
        # Emptied it may begin again, but goes on rolling
        require(filled == method and not padded, f"this cache was made to drop keys by {filled}; begin a new one")
    if rolling is not None and type(cache) is DynamicCache and not padded:
        _let_roll(cache, rolling, method, layers)


def _is_padded(mask: Any) -> bool:
    """Whether a sequence has padding, by a caller's mask or by ours, made ahead; where it cannot be known, too."""
    if isinstance(mask, dict):
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    if mask is None:
        return False
    known = MASK.on(mask) if isinstance(mask, Tensor) else None
    if known is not None:
        visible = known.visible
        return visible.hidden is not None or not bool(((visible.start == 0) & (visible.count > 0)).all())
    # One of four axes, shown or added to the logits, counts all keys, and none must go
    return not isinstance(mask, Tensor) or mask.dim() > 2 or not bool(mask.all())


def _let_roll(cache: DynamicCache, rolling: SinksAndWindow, method: str, modules: Sequence[nn.Module]) -> None:
    """Give an empty cache layers that roll, where the method acts; unless it has others that transformers cannot tell apart."""
    places = _places(modules)
    slots = enumerate(DynamicCache(config=modules[0].config).layers)
    if any(place not in places and type(slot) in PLAIN for place, slot in slots):
        # A module that runs several times a forward has as many slots, and tells one: all keys are kept
        return
    if cache.layer_class_to_replicate is not None:
        cache.layers += [cache.layer_class_to_replicate() for _ in range(len(cache.layers), max(places) + 1)]
    # A draft that leaves early has a cache of its first layers alone
    places = {place: found for place, found in places.items() if place < len(cache.layers)}
    # A window of the model's own counts slots, and those of a rolling layer do not stand in order
    acting = {
        place: module
        for place, (module, layer) in places.items()
        if layer is not None and layer.slots.rolling and own_window(module, module.config) is None
    }
    # transformers asks one layer for the sizes of all masks, unless it knows that others slide
    if all(cache.layers[place].is_sliding for place in places.keys() - acting.keys()):
        for place, module in acting.items():
            # Linear attention and convolutions keep states of their own, DeepSeek's what keys are made of: all of that is kept
            if type(cache.layers[place]) in PLAIN and not getattr(module.config, "kv_lora_rank", None):
                cache.layers[place] = RollingLayer(rolling.sinks, rolling.window, method)


def _give_turns(cache: Any, modules: Sequence[nn.Module]) -> None:
    """Let layers that roll turn their sinks; those of a copy, or of a pickle, have lost what did."""
    turnless = {
        place: rolls
        for place, rolls in enumerate(getattr(cache, "layers", ()))
        if isinstance(rolls, RollingLayer) and rolls.turn is None
    }
    for place, (module, layer) in _places(modules).items() if turnless else ():
        if place in turnless and layer is not None and layer.arrive_rotated:
            turnless[place].turn = turned_on(module, layer)


def _places(modules: Sequence[nn.Module]) -> dict[int, tuple[nn.Module, Layer | None]]:
    """Where each module finds its keys: a model may have other layers between."""
    return {getattr(module, "layer_idx", index): (module, LAYER.on(module)) for index, module in enumerate(modules)}


def _rolls(cache: Any) -> bool:
    return any(isinstance(layer, RollingLayer) for layer in getattr(cache, "layers", ()))


def _refuse_keys_without_method(cache: Any, filled: FilledWith) -> None:
    """After its method has ended, make the cache refuse the keys that the plain model would add.

    transformers asks nobody before a cache takes keys, and the layers that a cache is made of cannot ask instead: they are of a
    dozen classes, and a dynamic cache makes them while it is filled. So `update` is covered on this one object. It stays of its
    class, and a deep copy, as for assisted decoding, or a pickle has an `update` of its own.
    """
    FILLED.put(cache, filled)
    cache.__dict__["update"] = _Update(cache)


def _accept_all_keys(cache: Any) -> None:
    FILLED.remove(cache)
    cache.__dict__.pop("update", None)


@dataclass(eq=False)
class _Update:
    """`update` of a cache that a method has filled."""

    cache: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cache, filled = self.cache, FILLED.on(self.cache)
        assert filled is not None
        if not filled.patches.active:
            emptied = cache.get_seq_length() == 0 and not _rolls(cache)
            ended = f"this cache was filled with {filled.method}, which is no longer in force"
            require(emptied, f"{ended}; go on inside `extend`, or begin a new one")
            _accept_all_keys(cache)
        return type(cache).update(cache, *args, **kwargs)
