"""Entries of a model's modules and configs that are given other values for a while, and put back exactly.

`Patches` remembers what it replaced, so that it can be undone for good at the end of `extend`, or `suspended` while something
is computed with the model as it was. An interrupt may come at any line: a change is noted before it is made and forgotten after
it is undone, and undoing one twice is harmless. So an `undo` that was cut short is simply called again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

from torch import nn
from torch.utils.hooks import RemovableHandle

from lengthwise.errors import require
from lengthwise.models.anatomy import stack_of
from lengthwise.models.state import PATCHES

# The private attribute of a config: the public setter would also write into sub-configs
IMPLEMENTATION = "_attn_implementation_internal"
HOOKS = "_forward_"  # what a module's tables of forward hooks begin with; each has a hook or a flag by id
ABSENT = object()
LEFT_FIRST = "the outer `extend` of this model was left first, which ended the inner one; leave the inner one, and enter again"
BESIDE = "another task or thread has extended this model, and each would run the other's method; extend a copy, or take turns"

Entry = tuple[dict[str, Any], str, Any]  # a dictionary, a key of it, and a value for that key


class Shared(NamedTuple):
    """A patched entry of an object that several models may share, as a config."""

    owner: dict[Any, Any]
    first: Any  # the value before the first patch
    users: WeakSet[Patches]  # who patches it; a model that is dropped as it is takes its patches along


_shared: dict[tuple[int, Any], Shared] = {}
_sharing = threading.RLock()


class ActivePatches:
    """Whether some patches are in their model now. A cache that outlives them holds it, and so do the cache's copies."""

    def __init__(self) -> None:
        self.active = True

    def __deepcopy__(self, _: Any) -> ActivePatches:
        return self

    def __getstate__(self) -> dict[str, Any]:
        # Whoever reads a pickle has the method in force once a model admits what holds it
        return {"active": False}


@dataclass(eq=False)
class Patches:
    """Replaced entries with their former values, and hooks, which must do nothing while the patches are not `active`."""

    stack: nn.Module
    former: list[Entry] = field(default_factory=list)
    shared: list[tuple[dict[Any, Any], Any]] = field(default_factory=list)
    hooks: list[tuple[nn.Module, Any]] = field(default_factory=list)
    status: ActivePatches = field(default_factory=ActivePatches)
    ended_early: bool = False  # an outer `extend` was left first
    accelerates: bool = False  # no method is in force: other tasks and threads may extend the model, verbs may measure it
    thread: threading.Thread = field(default_factory=threading.current_thread)
    task: asyncio.Task[Any] | None = field(default_factory=lambda: _current_task())

    @property
    def active(self) -> bool:
        return self.status.active

    @property
    def ended_in_turn(self) -> bool:
        """Whether no outer `extend` was left before an inner one, here or below."""
        return not any(patches.ended_early for patches in (self, *(PATCHES.on(self.stack) or [])))

    def put_on(self) -> None:
        """Make these the innermost patches of their stack, which `suspended` and later ones know of."""
        nested = self.stack.__dict__.setdefault(PATCHES.key, [])
        for outer in nested:
            require(not outer.ended_early, LEFT_FIRST)
            require(not outer._runs_beside(self), BESIDE)
        nested.append(self)

    def _runs_beside(self, other: Patches) -> bool:
        """Whether these were put on in another thread or asyncio task than the other ones, which has not ended yet."""
        if self.accelerates:
            return False
        other_task = self.task is not None and self.task is not other.task and not self.task.done()
        return other_task or (self.thread is not other.thread and self.thread.is_alive())

    def set(self, owner: dict[str, Any], key: str, value: Any) -> None:
        self.former.append((owner, key, owner.get(key, ABSENT)))
        _write(owner, key, value)

    def set_shared(self, owner: dict[Any, Any], key: Any, value: Any) -> None:
        """`set` for an entry that other models patch too: the last to end puts back what was there before the first."""

        def join() -> None:
            for place, entry in list(_shared.items()):
                if not entry.users:
                    _write(entry.owner, place[1], entry.first)
                    del _shared[place]
            _shared.setdefault((id(owner), key), Shared(owner, owner.get(key, ABSENT), WeakSet())).users.add(self)
            owner[key] = value

        self.shared.append((owner, key))
        _alone(join)

    def add_hook(self, register: Callable[..., RemovableHandle], hook: Any, **options: Any) -> None:
        """`register` is a method of a module, as `stack.register_forward_hook`."""
        self.hooks.append((register.__self__, hook))  # type: ignore[attr-defined]
        register(hook, **options)

    def before(self, owner: dict[str, Any]) -> dict[str, Any]:
        """A copy of a patched dictionary as it was before these patches."""
        plain = {key: value for key, value in owner.items() if key != PATCHES.key}
        for _, key, value in reversed([entry for entry in self.former if entry[0] is owner]):
            _write(plain, key, value)
        hooks = [hook for module, hook in self.hooks if module.__dict__ is owner]
        ours = {key for table in _hook_tables(owner) for key, hook in table.items() if hook in hooks}
        for name, table in owner.items():
            if name.startswith(HOOKS):
                plain[name] = type(table)((key, value) for key, value in table.items() if key not in ours)
        return plain

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Undo at the end what was `set` in here."""
        before = len(self.former)
        try:
            yield
        finally:
            self._put_back(before)

    def undo(self) -> None:
        """Put everything back, last change first."""
        nested = PATCHES.on(self.stack) or []
        # Later patches replaced values of these and cannot stay without them; their hooks do, to say so
        for later in reversed(nested[nested.index(self) + 1 :] if self in nested else []):
            later.ended_early = True
            later._restore()
        self._restore()
        for module, hook in self.hooks:
            _remove_hook(module, hook)
        if self in nested:
            nested.remove(self)
        if not nested:
            PATCHES.remove(self.stack)

    def _restore(self) -> None:
        self._put_back()
        while self.shared:
            _alone(partial(self._leave, *self.shared[-1]))
            self.shared.pop()
        self.status.active = False

    def _put_back(self, down_to: int = 0) -> None:
        while len(self.former) > down_to:
            _write(*self.former[-1])
            self.former.pop()

    def _leave(self, owner: dict[Any, Any], key: Any) -> None:
        entry = _shared.get((id(owner), key))
        if entry is None:
            return
        entry.users.discard(self)
        if not entry.users:
            _write(owner, key, entry.first)
            del _shared[id(owner), key]


def value_before_patches(owner: dict[Any, Any], key: Any) -> Any:
    """The entry's value, or the one it had before the first model that shares it patched it."""
    entry = _shared.get((id(owner), key))
    return owner.get(key) if entry is None else entry.first


def refuse_extended(model: nn.Module, verb: str) -> None:
    """Raise for a model that is extended already: `verb` names the methods of its results, and this one would be left out."""
    free = all(patches.accelerates for patches in PATCHES.on(stack_of(model)) or [])
    require(free, f"this model is extended already, and {verb} extends it itself; leave `extend` first")


@contextmanager
def suspended(model: nn.Module) -> Iterator[None]:
    """The model as it was before it was extended, however many times it was."""
    nested = [patches for patches in PATCHES.on(stack_of(model)) or [] if patches.active]
    if not nested:
        yield
        return
    former: list[Entry] = []
    for patches in nested:
        shared = [(owner, key, value_before_patches(owner, key)) for owner, key in patches.shared]
        # What was not there before, as an attention function in transformers' list, other models may need
        former += [*patches.former, *(entry for entry in shared if entry[2] is not ABSENT)]
    # Noted among the innermost patches: whatever ends them, ends this
    with nested[-1].meanwhile():
        # Several may have patched one entry: each puts back what it replaced, the first one last
        for owner, key, value in reversed(former):
            nested[-1].set(owner, key, value)
        for patches in nested:
            nested[-1].set(vars(patches.status), "active", False)
        yield


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


def _write(owner: dict[Any, Any], key: Any, value: Any) -> None:
    if value is ABSENT:
        owner.pop(key, None)
    else:
        owner[key] = value


def _hook_tables(owner: dict[str, Any]) -> list[dict[int, Any]]:
    return [table for name, table in owner.items() if name.startswith(HOOKS)]


def _remove_hook(module: nn.Module, hook: Any) -> None:
    """By the hook itself: an interrupt in the midst of registering it leaves no handle."""
    tables = _hook_tables(vars(module))
    for key in [key for table in tables for key, value in table.items() if value is hook]:
        # Last out of the table that names the hook, by which it is found again after an interrupt in here
        for table in sorted(tables, key=lambda table: table.get(key) is hook):
            table.pop(key, None)


def _alone(step: Callable[[], None]) -> None:
    """Run `step` while no other thread changes shared entries; give back, too, what an interrupted call still holds."""
    try:
        _sharing.acquire()
        step()
    finally:
        # Until it says that this thread holds it no more
        with suppress(RuntimeError):
            while True:
                _sharing.release()


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
