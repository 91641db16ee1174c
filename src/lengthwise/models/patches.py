"""What was put into a model, kept so that it can be taken out again: for good, or while something is read as before."""

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

IN_FORCE = "_lengthwise_changes"
ABSENT = object()

Entry = tuple[dict[str, Any], str, Any]  # whose, which, and a value of it

# Entries of what several models may share, as a config: what was there before the first of its users, and how many there are
_shared: dict[tuple[int, str], tuple[Any, int]] = {}
_sharing = threading.Lock()


class Force:
    """Whether changes are in force; what outlives them may keep it, and a copy of that keeps the same."""

    def __init__(self) -> None:
        self.out = False

    def __deepcopy__(self, _: Any) -> Force:
        return self


@dataclass(eq=False)
class Changes:
    """Entries of modules and configs that were given other values, and hooks, which rest while the changes are `out`."""

    before: list[Entry] = field(default_factory=list)
    shared: list[Entry] = field(default_factory=list)
    hooks: list[RemovableHandle] = field(default_factory=list)
    force: Force = field(default_factory=Force)

    @property
    def out(self) -> bool:
        return self.force.out

    def set(self, owner: dict[str, Any], key: str, value: Any) -> None:
        self.before.append((owner, key, owner.get(key, ABSENT)))
        owner[key] = value

    def share(self, owner: dict[str, Any], key: str, value: Any) -> None:
        """As `set`, where others may set the same: the last one to end puts back what the first one found."""
        with _sharing:
            first, users = _shared.get((id(owner), key), (owner.get(key, ABSENT), 0))
            _shared[id(owner), key] = first, users + 1
        self.shared.append((owner, key, first))
        owner[key] = value

    def hook(self, handle: RemovableHandle) -> None:
        self.hooks.append(handle)

    @contextmanager
    def in_force(self, model: nn.Module) -> Iterator[None]:
        """Known to `suspended` until its end, and undone then."""
        home = stack_of(model).__dict__
        known: list[Changes] = home.setdefault(IN_FORCE, [])
        known.append(self)
        try:
            yield
        finally:
            # Later ones found what this one had set: they cannot stay without it
            ended = known[known.index(self) :] if self in known else []
            for one in reversed(ended):
                one._undo()
                known.remove(one)
            if not known:
                home.pop(IN_FORCE, None)
            if len(ended) > 1:
                raise BadInput("this model was extended again and the outer `extend` was left first; both are undone now")

    def _undo(self) -> None:
        self.force.out = True
        for handle in reversed(self.hooks):
            handle.remove()
        _put(reversed(self.before))
        with _sharing:
            for owner, key, first in self.shared:
                users = _shared.pop((id(owner), key))[1] - 1
                if users:
                    _shared[id(owner), key] = first, users
                else:
                    _put([(owner, key, first)])


def as_found(owner: dict[str, Any], key: str) -> Any:
    """What `owner` holds, or held before anybody began to share it."""
    return _shared.get((id(owner), key), (owner.get(key), 0))[0]


def refuse_extended(model: nn.Module, verb: str) -> None:
    """Where methods are named by their results: what is in force already would come on top of them unnamed."""
    free = IN_FORCE not in stack_of(model).__dict__
    require(free, f"this model is extended already, and {verb} extends it itself; leave `extend` first")


@contextmanager
def suspended(model: nn.Module) -> Iterator[None]:
    """The model as it was before it was extended, however many times it was."""
    known: list[Changes] = [one for one in stack_of(model).__dict__.get(IN_FORCE, []) if not one.out]
    before = [entry for one in known for entry in (*one.before, *one.shared)]
    # One entry may have been set by several: each puts back what it found, the first one last
    after = [(owner, key, owner.get(key, ABSENT)) for owner, key, _ in before]
    _put(reversed(before))
    for one in known:
        one.force.out = True
    try:
        yield
    finally:
        for one in known:
            one.force.out = False
        _put(after)


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """All modules training, or none; afterwards just those that did."""
    before = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in before:
            module.training = training
        yield
    finally:
        for module, did in before:
            module.training = did


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """No dropout while it lasts."""
    return in_mode(model, training=False)


def _put(entries: Iterator[Entry] | list[Entry]) -> None:
    for owner, key, value in entries:
        if value is ABSENT:
            owner.pop(key, None)
        else:
            owner[key] = value
