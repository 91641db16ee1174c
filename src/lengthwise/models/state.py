"""All that lengthwise keeps on objects of others, and the only way to it: `STATE.on(object)`.

    LAYER     on an attention module    its place in the equation                        until `extend` ends
    PATCHES   on an extended stack      what was changed, the outermost `extend` first   until the last `extend` ends
    AS_READ   on a GGUF file's model    digests of its weights as they were read         for good
    FILLED    on a cache of keys        the method that placed its keys                  until the cache is emptied
    MASK      for a mask tensor         the runs of keys that it stands for              until the tensor dies

Modules and caches carry theirs as an attribute, because copies of a cache must keep it. Tensors carry nothing.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from lengthwise.models.cache import FilledWith
    from lengthwise.models.layer import Layer
    from lengthwise.models.masks import ForwardMask
    from lengthwise.models.patches import Patches

T = TypeVar("T")


class Attribute(Generic[T]):
    """State under a name that nobody else uses, in an object's `__dict__`: past `nn.Module.__setattr__`."""

    def __init__(self, key: str) -> None:
        self.key = key

    def on(self, owner: Any) -> T | None:
        value: T | None = owner.__dict__.get(self.key)
        return value

    def put(self, owner: Any, value: T) -> None:
        owner.__dict__[self.key] = value

    def remove(self, owner: Any) -> None:
        owner.__dict__.pop(self.key, None)


class OfTensors(Generic[T]):
    """State of tensors by their identity; it dies with the tensor.

    torch's WeakTensorKeyDictionary does the same, at fifty times the price of this look-up, which every layer pays. In a graph
    that is being compiled there is no such state: a mask is then read from its numbers.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Tensor], T]] = {}

    def on(self, tensor: Tensor) -> T | None:
        if torch.compiler.is_compiling():
            return None
        entry = self._entries.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def put(self, tensor: Tensor, value: T) -> None:
        """`value` must not hold the tensor, or neither would ever die."""
        if not torch.compiler.is_compiling():
            key = id(tensor)
            self._entries[key] = weakref.ref(tensor, lambda dead: self._forget(key, dead)), value

    def _forget(self, key: int, dead: weakref.ref[Tensor]) -> None:
        # A new tensor may have the id already
        if (entry := self._entries.get(key)) is not None and entry[0] is dead:
            del self._entries[key]

    def __len__(self) -> int:
        return len(self._entries)


AS_READ: Attribute[frozenset[str]] = Attribute("_lengthwise_as_read")
LAYER: Attribute[Layer] = Attribute("_lengthwise_layer")
PATCHES: Attribute[list[Patches]] = Attribute("_lengthwise_patches")
FILLED: Attribute[FilledWith] = Attribute("_lengthwise_filled")
MASK: OfTensors[ForwardMask] = OfTensors()
