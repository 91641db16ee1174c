"""The methods of an evaluation, each under the name that its records carry.

`truncate` is a baseline beside `none`: the plain model reads the end of the prompt, as much as it was trained on.
`hedge` before a method mixes the two: the whole prompt under the method, and its end (evaluation/hedge.py).
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
class NamedMethod:
    """One method of an evaluation. Its files are read once: they may change while a run goes on, its records may not."""

    name: str  # as it stands in the records
    installs: tuple[object, ...] = ()  # method objects for `lengthwise.extend`
    truncates: bool = False  # whether the model reads the end of the prompt only
    hedges: bool = False  # whether the model reads the end as well

    @property
    def reads(self) -> str:
        """Which part of a prompt the model reads: `whole`, its `end`, or `both`."""
        return "end" if self.truncates else "both" if self.hedges else "whole"

    @property
    def document(self) -> Any:
        """The content of the files that the method was read from, for the run's config."""
        return file_contents_of(self.installs)


def named_methods(methods: Iterable[object] | Mapping[str, object], facts: Mapping[str, object]) -> list[NamedMethod]:
    """Name specs and method objects; a mapping gives them names of the caller's own. `facts` are the model's."""
    if isinstance(methods, str):
        methods = [methods]
    named = methods.items() if isinstance(methods, Mapping) else [(record_name(method), method) for method in methods]
    by_name: dict[str, NamedMethod] = {}
    for name, method in named:
        candidate = _named(name, method, facts)
        if by_name.setdefault(name, candidate) != candidate:
            raise BadInput(f"two different methods are called {name!r}; give them names: methods={{'name': method, ...}}")
    if not by_name:
        raise BadInput("give at least one method; `none` is the plain model")
    return list(by_name.values())


def record_name(method: object) -> str:
    """The name in the records: a spec as it is, an alignment by what it aligns, `hedge` alone as `hedge+none`."""
    name = _spelling(method)
    return PLAIN_HEDGE if _parts(name) in ([HEDGE], [HEDGE, NONE]) else name


def _spelling(method: object) -> str:
    if isinstance(method, str):
        return method.strip()
    if isinstance(method, list | tuple):
        return "+".join(map(_spelling, method)) or NONE
    if isinstance(method, Alignment):
        return f"aligned({method.statistic}, {method.scope})"
    return repr(method)


def _named(name: str, method: object, facts: Mapping[str, object]) -> NamedMethod:
    if isinstance(method, NamedMethod):
        return replace(method, name=name)
    if method == TRUNCATE:
        return NamedMethod(name, truncates=True)
    hedges, method = _split_hedge(method)
    return NamedMethod(name, tuple(_method_objects(method, facts)), hedges=hedges)


def _split_hedge(method: object) -> tuple[bool, object]:
    """Whether `hedge` comes before the method, and the method; `hedge` alone hedges the plain model."""
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


def _method_objects(method: object, facts: Mapping[str, object]) -> list[object]:
    if isinstance(method, str):
        parts = _parts(method)
        if TRUNCATE in parts:
            raise BadInput(f"{method!r}: truncate is a baseline of its own and cannot be joined with a method")
        if HEDGE in parts:
            rest = "+".join(part for part in parts if part != HEDGE) or NONE
            raise BadInput(f"{method!r}: hedge comes first, before the methods it hedges; write hedge+{rest}")
        return methods_of(method, facts)
    if isinstance(method, list | tuple):
        refuse_joined_none([record_name(part) for part in method])
        return [installed for part in method for installed in _method_objects(part, facts)]
    return [method]
