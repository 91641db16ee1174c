"""Entries of a model's modules and configs that are given other values for a while, and put back exactly.

`Patches` remembers what it replaced, so that it can be undone for good at the end of `extend`, or `suspended` while something
is computed with the model as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from lengthwise.errors import BadInput, require
from lengthwise.models.anatomy import stack_of
from lengthwise.models.state import PATCHES

# The private attribute of a config: the public setter would also write into sub-configs
IMPLEMENTATION = "_attn_implementation_internal"
ABSENT = object()

Entry = tuple[dict[str, Any], str, Any]  # a dictionary, a key of it, and a value for that key

# Patched entries of objects that several models may share, as a config: the value before the first patch, and how many patch it
_shared: dict[tuple[int, str], tuple[Any, int]] = {}
_sharing = threading.Lock()


class ActivePatches:
    """Whether some patches are in their model now. A cache that outlives them holds it, and so do the cache's copies."""

    def __init__(self) -> None:
        self.active = True

    def __deepcopy__(self, _: Any) -> ActivePatches:
        return self


@dataclass(eq=False)
class Patches:
    """Replaced entries with their former values, and hooks, which must do nothing while the patches are not `active`."""

    former: list[Entry] = field(default_factory=list)
    shared: list[Entry] = field(default_factory=list)
    hooks: list[RemovableHandle] = field(default_factory=list)
    status: ActivePatches = field(default_factory=ActivePatches)

    @property
    def active(self) -> bool:
        return self.status.active

    def set(self, owner: dict[str, Any], key: str, value: Any) -> None:
        self.former.append((owner, key, owner.get(key, ABSENT)))
        owner[key] = value

    def set_shared(self, owner: dict[str, Any], key: str, value: Any) -> None:
        """`set` for an entry that other models patch too: the last to end puts back what was there before the first."""
        with _sharing:
            first, users = _shared.get((id(owner), key), (owner.get(key, ABSENT), 0))
            _shared[id(owner), key] = first, users + 1
        self.shared.append((owner, key, first))
        owner[key] = value

    @contextmanager
    def on(self, model: nn.Module) -> Iterator[None]:
        """Undo everything at the end; until then `suspended` knows of these patches."""
        stack = stack_of(model)
        if (nested := PATCHES.on(stack)) is None:
            PATCHES.put(stack, nested := [])
        nested.append(self)
        try:
            yield
        finally:
            # Later patches replaced values of these: they cannot stay without them
            ended = nested[nested.index(self) :] if self in nested else []
            for patches in reversed(ended):
                patches._undo()
                nested.remove(patches)
            if not nested:
                PATCHES.remove(stack)
            if len(ended) > 1:
                raise BadInput("this model was extended again and the outer `extend` was left first; both are undone now")

    def _undo(self) -> None:
        self.status.active = False
        for handle in reversed(self.hooks):
            handle.remove()
        _write(reversed(self.former))
        with _sharing:
            for owner, key, first in self.shared:
                users = _shared.pop((id(owner), key))[1] - 1
                if users:
                    _shared[id(owner), key] = first, users
                else:
                    _write([(owner, key, first)])


def value_before_patches(owner: dict[str, Any], key: str) -> Any:
    """The entry's value, or the one it had before the first model that shares it patched it."""
    return _shared.get((id(owner), key), (owner.get(key), 0))[0]


def refuse_extended(model: nn.Module, verb: str) -> None:
    """Raise for a model that is extended already: `verb` names the methods of its results, and this one would be left out."""
    free = PATCHES.on(stack_of(model)) is None
    require(free, f"this model is extended already, and {verb} extends it itself; leave `extend` first")


@contextmanager
def suspended(model: nn.Module) -> Iterator[None]:
    """The model as it was before it was extended, however many times it was."""
    resting = [patches for patches in PATCHES.on(stack_of(model)) or [] if patches.active]
    former = [entry for patches in resting for entry in (*patches.former, *patches.shared)]
    # Several may have patched one entry: each puts back what it replaced, the first one last
    patched = [(owner, key, owner.get(key, ABSENT)) for owner, key, _ in former]
    _write(reversed(former))
    for patches in resting:
        patches.status.active = False
    try:
        yield
    finally:
        for patches in resting:
            patches.status.active = True
        _write(patched)


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """All modules in training mode, or none of them; afterwards each in the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = training
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """All modules in evaluation mode for a while: no dropout."""
    return in_mode(model, training=False)


def _write(entries: Iterator[Entry] | list[Entry]) -> None:
    for owner, key, value in entries:
        if value is ABSENT:
            owner.pop(key, None)
        else:
            owner[key] = value
