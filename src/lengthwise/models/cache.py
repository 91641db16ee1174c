"""Caches of keys under a method: which may be used, and one that keeps only what a rolling method still sees.

A cache holds keys as the method left them, so one that was begun without the method cannot be continued with it. StreamingLLM
sees a few sinks and a window: keys between the two are dropped, and a generation of any length takes the memory of one window.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from lengthwise.errors import BadInput

MARK = "_lengthwise_method"
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
        self.seen = 0
        super().reset()

    def crop(self, tokens_to_remove: int) -> None:
        raise BadInput("a rolling cache has dropped what it would have to go back to; use another way of decoding")


def admitted(cache: Any, method: object, rolling: Any, padded: bool) -> None:
    """Lets a fresh cache in and makes it roll if it can; refuses one that was filled under another method."""
    if cache is None:
        return
    if cache.get_seq_length() > 0:
        if getattr(cache, MARK, None) != repr(method):
            raise BadInput(f"this cache was filled without {method}, so its keys stand elsewhere; begin one inside `extend`")
        return
    setattr(cache, MARK, repr(method))
    # Rows of a padded batch have their sinks at different places: there all keys are kept
    if rolling is not None and type(cache) is DynamicCache and not padded:
        make = partial(RollingLayer, rolling.sinks, rolling.window)
        # Linear attention and convolutions keep states of their own
        cache.layers[:] = [make() if type(layer) in PLAIN else layer for layer in cache.layers]
        if cache.layer_class_to_replicate is not None:
            cache.layer_class_to_replicate = make
