"""Caches of keys under a method: which may be used, and one that keeps only what a rolling method still sees.

A cache holds keys as a rotation or a similarity left them: one that was begun without the method cannot be continued with it,
nor the other way round, inside `extend` or after it. Temperatures, biases and windows leave keys as they are. StreamingLLM sees
a few sinks and a window: keys between the two are dropped, and a generation of any length takes the memory of one window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from lengthwise.errors import BadInput, require
from lengthwise.methods.slots import Slots
from lengthwise.models.patches import ActivePatches
from lengthwise.models.state import FILLED

PLAIN = (DynamicLayer, DynamicSlidingWindowLayer)


class RollingLayer(DynamicLayer):  # type: ignore[misc]
    """The first `sinks` keys and the last `window` - 1: all that the next query can see beside itself."""

    is_croppable = False
    keys: Tensor
    values: Tensor

    def __init__(self, sinks: int, window: int, method: str, **kwargs: Any) -> None:
        super().__init__()
        self.sinks, self.window, self.method, self.seen = sinks, window, method, 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.seen += key_states.shape[-2]
        keys, values = (torch.cat(both, -2) for both in ((self.keys, key_states), (self.values, value_states)))
        self.keys, self.values = self._kept(keys), self._kept(values)
        return keys, values

    def _kept(self, states: Tensor) -> Tensor:
        recent = self.window - 1
        if states.shape[-2] <= self.sinks + recent:
            return states
        return torch.cat((states[..., : self.sinks, :], states[..., states.shape[-2] - recent :, :]), -2)

    @property
    def stored(self) -> int:
        return int(self.keys.shape[-2]) if self.is_initialized and self.keys.numel() else 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.stored + query_length, self.seen - self.stored

    def get_seq_length(self) -> int:
        return self.seen

    def reset(self) -> None:
        super().reset()
        self.seen = 0
        if self.stored:
            # Older transformers fill keys with zeros, where they stand
            self.keys, self.values = self.keys[..., :0, :], self.values[..., :0, :]

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last tokens, as assisted decoding does with those that were guessed wrong."""
        if tokens_to_remove == 0:
            return
        room = self.sinks + self.window - 1
        require(
            self.seen == self.stored,
            f"assisted decoding takes keys back, and {self.method} has dropped some at {self.seen} tokens, beyond the {room} "
            "that it keeps; generate without assistant_model or prompt_lookup_num_tokens, or give a larger window",
        )
        super().crop(tokens_to_remove)
        self.seen = self.stored


@dataclass
class FilledWith:
    """Which method placed the keys of a cache, and whether it is still on the model."""

    method: str
    patches: ActivePatches


def admit(cache: Any, slots: Slots, stay: set[int], mask: Any, patches: ActivePatches) -> None:
    """Let a fresh cache in, and make it roll if it can, but for layers that `stay`; refuse one filled under another method."""
    # Bert's kind of decoder keeps the keys of cross-attention beside its own
    cache = getattr(cache, "self_attention_cache", cache)
    method = " and ".join(repr(filled) for filled in (slots.rotation, slots.similarity) if filled is not None)
    earlier, rolling = FILLED.on(cache), slots.rolling
    filled = "" if earlier is None else earlier.method
    # Before the length is asked for, which a static cache keeps on the GPU
    if filled != method or rolling is not None:
        _check(cache, filled, method, rolling, stay, mask)
    if method:
        _refuse_keys_without_method(cache, FilledWith(method, patches))
    elif earlier is not None:
        _accept_all_keys(cache)


def _check(cache: Any, filled: str, method: str, rolling: Any, stay: set[int], mask: Any) -> None:
    # Rows of a padded batch have their sinks at different places: there all keys are kept
    padded = rolling is not None and isinstance(mask, Tensor) and not bool(mask.bool().all())
    if cache.get_seq_length() > 0:
        if filled != method:
            how = f"without {method}" if method else f"with {filled}"
            raise BadInput(f"this cache was filled {how}, so its keys stand elsewhere; begin one inside `extend`")
        pushed = "this cache drops its oldest keys, and padding would push out real ones"
        require(not (_rolls(cache) and padded), f"{pushed}; begin a new one, or pad before its first token")
        return
    if _rolls(cache):
        # Emptied it may begin again, but goes on rolling
        require(filled == method and not padded, f"this cache was made to drop keys by {filled}; begin a new one")
    # transformers asks one layer for the sizes of all masks, unless it knows that others slide
    told_apart = all(index < len(cache.layers) and cache.layers[index].is_sliding for index in stay)
    if rolling is not None and type(cache) is DynamicCache and not padded and told_apart:
        make = partial(RollingLayer, rolling.sinks, rolling.window, method)
        # Linear attention and convolutions keep states of their own
        rolls = [type(layer) in PLAIN and index not in stay for index, layer in enumerate(cache.layers)]
        cache.layers[:] = [make() if here else layer for here, layer in zip(rolls, cache.layers, strict=True)]
        if cache.layer_class_to_replicate is not None:
            cache.layer_class_to_replicate = make


def _rolls(cache: Any) -> bool:
    return any(isinstance(layer, RollingLayer) for layer in getattr(cache, "layers", ()))


def _refuse_keys_without_method(cache: Any, filled: FilledWith) -> None:
    """After its method has ended, make the cache refuse the keys that the plain model would add.

    transformers asks nobody before a cache takes keys, and the layers that a cache is made of cannot ask instead: they are of a
    dozen classes, and a dynamic cache makes them while it is filled. So `update` is covered on this one object. It stays of its
    class, and a method bound to the cache is bound to the copy in a deep copy, as for assisted decoding.
    """
    FILLED.put(cache, filled)
    cache.__dict__["update"] = MethodType(_update, cache)


def _accept_all_keys(cache: Any) -> None:
    FILLED.remove(cache)
    cache.__dict__.pop("update", None)


def _update(cache: Any, *args: Any, **kwargs: Any) -> Any:
    filled = FILLED.on(cache)
    assert filled is not None
    if not filled.patches.active:
        emptied = cache.get_seq_length() == 0 and not _rolls(cache)
        ended = f"this cache was filled with {filled.method}, which is no longer in force"
        require(emptied, f"{ended}; go on inside `extend`, or begin a new one")
        _accept_all_keys(cache)
    return type(cache).update(cache, *args, **kwargs)
