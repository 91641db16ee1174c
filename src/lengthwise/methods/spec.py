"""Read a method from a line of text: `none`, `NAME[:key=value,...]`, `@alignment.json`, joined by `+`."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence

from lengthwise.errors import BadInput, did_you_mean
from lengthwise.methods.registry import CATALOGUE

# What of a prompt is read: no methods (evaluation/sweep/named_methods.py)
READINGS = ("truncate", "hedge")


def methods_of(spec: str, facts: Mapping[str, object]) -> list[object]:
    """The methods a spec names; `facts` (train_length, key_size, ...) fill in what a method needs of the model."""
    parts = [part.strip() for part in spec.split("+")]
    refuse_joined_none(parts)
    return [_method(part, spec, facts) for part in parts if part != "none"]


def refuse_joined_none(names: Sequence[str]) -> None:
    """It would make a second name for one method."""
    if "none" in names and len(names) > 1:
        raise BadInput(f"{'+'.join(names)!r}: none is the plain model and cannot be joined with a method; leave none out")


def _method(part: str, spec: str, facts: Mapping[str, object]) -> object:
    name, _, rest = part.partition(":")
    if part.startswith("@"):
        name, rest = "aligned", f"path={part[1:]}"
    if name in READINGS:
        raise BadInput(f"{spec!r}: truncate and hedge are for evaluate and reach, without options; leave {name} out here")
    if name not in CATALOGUE:
        hint = did_you_mean(name, ["none", *CATALOGUE], "`lengthwise methods` lists them.")
        raise BadInput(f"no method {name!r} in {spec!r}; {hint}")
    factory = CATALOGUE[name]
    wanted = inspect.signature(factory).parameters
    given = _arguments(name, rest, wanted, typing.get_type_hints(factory))
    for key, value in facts.items():
        # A default of the method's own is meant: softmax_plus's base is not the model's
        if key in wanted and key not in given and wanted[key].default in (inspect.Parameter.empty, None):
            given[key] = value
    missing = [key for key, p in wanted.items() if p.default is p.empty and key not in given]
    if missing:
        raise BadInput(f"method {name!r} needs {missing[0]}; write {name}:{missing[0]}=...")
    return factory(**given)


def _arguments(
    name: str, text: str, wanted: Mapping[str, inspect.Parameter], types_: Mapping[str, object]
) -> dict[str, object]:
    given: dict[str, object] = {}
    for pair in filter(None, text.split(",")):
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not equals or key not in wanted:
            known = ", ".join(wanted) or "none"
            raise BadInput(f"method {name!r} has no option {pair.strip()!r}; its options are: {known}")
        if key in given:
            raise BadInput(f"method {name!r} is given {key} twice")
        try:
            given[key] = _converted(value, types_[key])
        except ValueError:
            raise BadInput(f"method {name!r}: {key}={value} is not {_words(types_[key])}") from None
    return given


def _converted(text: str, kind: object) -> object:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if isinstance(kind, types.UnionType):
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    return typing.cast(Callable[[str], object], kind)(text)


def _words(kind: object) -> str:
    return {int: "a whole number", bool: "true or false"}.get(typing.cast(type, kind), "a number")


def one_line(name: str) -> str:
    """What a method is: the first line of the file it lives in."""
    return str(sys.modules[CATALOGUE[name].__module__].__doc__).split("\n", 1)[0]
