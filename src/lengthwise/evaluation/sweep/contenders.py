"""The methods of an evaluation, by the names their records carry.

`truncate` stands beside `none` as a baseline: the plain model reads the end of the prompt, as much as it was trained on.
`hedge` before a method mixes the two: the whole prompt under the method, and its end (lengthwise/hedge.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lengthwise.errors import BadInput
from lengthwise.methods.base import file_contents_of
from lengthwise.methods.spec import methods_of, refuse_joined_none
from lengthwise.methods.temperature.aligned import Alignment

NONE, TRUNCATE, HEDGE = "none", "truncate", "hedge"
# One name for `hedge` as well: records of the same answers must not stand under two
PLAIN_HEDGE = f"{HEDGE}+{NONE}"


@dataclass(frozen=True)
class Contender:
    """One method, read once: its files may change while a sweep runs, its records may not."""

    name: str  # as it stands in the records
    methods: tuple[object, ...] = ()  # what `lengthwise.extend` installs
    truncates: bool = False
    hedges: bool = False

    @property
    def reads(self) -> str:
        """What of a prompt: `whole`, its `end`, or `both`."""
        return "end" if self.truncates else "both" if self.hedges else "whole"

    @property
    def document(self) -> Any:
        """What was read from files, behind the name."""
        return file_contents_of(self.methods)


def contenders_of(methods: Iterable[object] | Mapping[str, object], facts: Mapping[str, object]) -> list[Contender]:
    """Specs, method objects, or a mapping that gives methods names of your own; `facts` are the model's."""
    if isinstance(methods, str):
        methods = [methods]
    named = methods.items() if isinstance(methods, Mapping) else [(name_of(method), method) for method in methods]
    found: dict[str, Contender] = {}
    for name, method in named:
        contender = _contender(name, method, facts)
        if found.setdefault(name, contender) != contender:
            raise BadInput(f"two different methods are called {name!r}; give them names: methods={{'name': method, ...}}")
    if not found:
        raise BadInput("give at least one method; `none` is the plain model")
    return list(found.values())


def name_of(method: object) -> str:
    """A spec is its own name; an alignment is called by what it aligns, and `hedge` alone by what it hedges."""
    name = _spelt(method)
    return PLAIN_HEDGE if _parts(name) in ([HEDGE], [HEDGE, NONE]) else name


def _spelt(method: object) -> str:
    if isinstance(method, str):
        return method.strip()
    if isinstance(method, list | tuple):
        return "+".join(map(_spelt, method)) or NONE
    if isinstance(method, Alignment):
        return f"aligned({method.statistic}, {method.scope})"
    return repr(method)


def _contender(name: str, method: object, facts: Mapping[str, object]) -> Contender:
    if isinstance(method, Contender):
        return replace(method, name=name)
    if method == TRUNCATE:
        return Contender(name, truncates=True)
    hedges, method = _hedged(method)
    return Contender(name, tuple(_listed(method, facts)), hedges=hedges)


def _hedged(method: object) -> tuple[bool, object]:
    """Whether `hedge` stands before the method, and the method; `hedge` alone is that of the plain model."""
    if isinstance(method, str):
        first, joined, rest = method.partition("+")
        if first.strip() != HEDGE:
            return False, method
        if joined and not rest.strip():
            raise BadInput(f"{method!r}: no method stands after the +; write {PLAIN_HEDGE}, or hedge+METHOD")
        return True, rest or NONE
    if isinstance(method, list | tuple) and method and method[0] == HEDGE:
        return True, method[1:]
    return False, method


def _parts(spec: str) -> list[str]:
    return [part.strip() for part in spec.split("+")]


def _listed(method: object, facts: Mapping[str, object]) -> list[object]:
    if isinstance(method, str):
        parts = _parts(method)
        if TRUNCATE in parts:
            raise BadInput(f"{method!r}: truncate is a baseline of its own and cannot be joined with a method")
        if HEDGE in parts:
            rest = "+".join(part for part in parts if part != HEDGE) or NONE
            raise BadInput(f"{method!r}: hedge comes first, before the methods it hedges; write hedge+{rest}")
        return methods_of(method, facts)
    if isinstance(method, list | tuple):
        refuse_joined_none([name_of(part) for part in method])
        return [one for part in method for one in _listed(part, facts)]
    return [method]
