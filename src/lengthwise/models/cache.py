"""Caches of keys under a method: which may be used, and one that keeps only what a rolling method still sees.

A cache holds keys as a rotation or a similarity left them: one that was begun without the method cannot be continued with it,
nor the other way round, inside `extend` or after it. Temperatures, biases and windows leave keys as they are. StreamingLLM sees
a few sinks and a window: keys between the two are dropped, and a generation of any length takes the memory of one window.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from lengthwise.errors import BadInput, require
from lengthwise.methods.slots import Slots
from lengthwise.models.patches import Force

MARK = "_lengthwise_method"
IN_FORCE = "_lengthwise_in_force"
PLAIN = (DynamicLayer, DynamicSlidingWindowLayer)


class RollingLayer(DynamicLayer):  # type: ignore[misc]
    """The first `sinks` keys and the last `window` - 1: all that the next query can see beside itself."""

    is_croppable = False
    keys: Tensor
    values: Tensor

    def __init__(self, sinks: int, window: int, **kwargs: Any) -> None:
        super().__init__()
        self.sinks, self.window, self.seen = sinks, window, 0

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
        raise BadInput("a rolling cache has dropped what it would have to go back to; use another way of decoding")


def admitted(cache: Any, slots: Slots, mask: Any) -> None:
    """Lets a fresh cache in and makes it roll if it can; refuses one that was filled under another method."""
    method = " and ".join(repr(one) for one in (slots.rotation, slots.similarity) if one is not None)
    filled, rolling = getattr(cache, MARK, ""), slots.rolling
    # Before the length is asked for, which a static cache keeps on the GPU
    if filled == method and rolling is None:
        return
    # Rows of a padded batch have their sinks at different places: there all keys are kept
    padded = rolling is not None and isinstance(mask, Tensor) and not bool(mask.bool().all())
    rolls = any(isinstance(layer, RollingLayer) for layer in getattr(cache, "layers", ()))
    if cache.get_seq_length() > 0:
        if filled != method:
            how = f"without {method}" if method else f"with {filled}"
            raise BadInput(f"this cache was filled {how}, so its keys stand elsewhere; begin one inside `extend`")
        pushed = "this cache drops its oldest keys, and padding would push out real ones"
        require(not (rolls and padded), f"{pushed}; begin a new one, or pad before its first token")
        return
    if rolls:
        # Emptied it may begin again, but goes on rolling
        require(filled == method and not padded, f"this cache was made to drop keys by {filled}; begin a new one")
    setattr(cache, MARK, method)
    if rolling is not None and type(cache) is DynamicCache and not padded:
        make = partial(RollingLayer, rolling.sinks, rolling.window)
        # Linear attention and convolutions keep states of their own
        cache.layers[:] = [make() if type(layer) in PLAIN else layer for layer in cache.layers]
        if cache.layer_class_to_replicate is not None:
            cache.layer_class_to_replicate = make


def guard(cache: Any, force: Force) -> None:
    """Once the method is out of force, a cache that was filled with it takes no more keys, which would be the plain model's."""
    if not getattr(cache, MARK, ""):
        return
    setattr(cache, IN_FORCE, force)
    if not hasattr(cache, "_guarded"):
        cache.__class__ = _guarded(type(cache))  # type: ignore[arg-type]  # mypy takes no type for hashable


@lru_cache
def _guarded(kind: type[Any]) -> type[Any]:
    class Guarded(kind):  # type: ignore[misc]
        _guarded = True

        def update(self, *args: Any, **kwargs: Any) -> Any:
            if getattr(self, IN_FORCE).out and _as_new(self):
                self.__class__ = kind
                setattr(self, MARK, "")
                return self.update(*args, **kwargs)
            filled = f"this cache was filled with {getattr(self, MARK)}, which is no longer in force"
            require(not getattr(self, IN_FORCE).out, f"{filled}; go on inside `extend`, or begin a new one")
            return super().update(*args, **kwargs)

    Guarded.__name__, Guarded.__qualname__ = kind.__name__, kind.__qualname__
    return Guarded


def _as_new(cache: Any) -> bool:
    """Emptied, and of no layers that drop keys."""
    return cache.get_seq_length() == 0 and not any(isinstance(layer, RollingLayer) for layer in getattr(cache, "layers", ()))
