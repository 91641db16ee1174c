"""The methods of an evaluation, each under the name that its records carry.

What `truncate` and `hedge` mean is said in methods/spec.py, and how the two readings of a hedge are mixed in hedge.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lengthwise.errors import BadInput
from lengthwise.methods.base import file_contents_of
from lengthwise.methods.recipe import Recipe
from lengthwise.methods.spec import NONE, TRUNCATE, WHOLE, parse_spec, short_name
from lengthwise.methods.temperature.aligned import Alignment

ADDRESS = "at0x"  # in the repr of a function or an object that does not say what it is, without spaces


@dataclass(frozen=True)
class NamedMethod:
    """One method of an evaluation. Its files are read once: they may change while a run goes on, its records may not."""

    name: str  # as it stands in the records
    installs: tuple[object, ...] = ()  # method objects for `lengthwise.extend`
    reads: str = WHOLE  # which part of a prompt the model reads; or its END, or BOTH
    spec: str = field(default="", compare=False)  # where the name is the caller's own and does not tell it

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
    return parse_spec(_spelling(method)).text


def _spelling(method: object) -> str:
    if isinstance(method, str):
        return method.strip()
    if isinstance(method, Recipe):
        return method.method
    if isinstance(method, list | tuple):
        return "+".join(map(_spelling, method)) or NONE
    if isinstance(method, Alignment):
        return f"aligned({method.statistic}, {method.scope})"
    return repr(method)


def _named(name: str, method: object, facts: Mapping[str, object]) -> NamedMethod:
    if isinstance(method, NamedMethod):
        return replace(method, name=name)
    # Method objects stand in the spec by how they are spelt, which is enough to see what is joined to what
    spec = parse_spec(_spelling(method))
    spelt = short_name(spec.text).replace(" ", "")
    spelt = "" if spelt == name.replace(" ", "") or ADDRESS in spelt else spelt
    return NamedMethod(name, tuple(_method_objects(method, facts)), spec.reads, spelt)


def _method_objects(method: object, facts: Mapping[str, object]) -> list[object]:
    if isinstance(method, str):
        return parse_spec(method).methods(facts)
    if isinstance(method, Recipe):
        method = [] if method.method == TRUNCATE else method.installs
    if isinstance(method, list | tuple):
        return [installed for part in method for installed in _method_objects(part, facts)]
    return [method]
