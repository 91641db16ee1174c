"""Public functions refuse arguments of another type than their signature says, before anything is done.

Numbers of other libraries become Python's, so that they can be written into records.
"""

from __future__ import annotations

import numbers
import operator
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from lengthwise.common.formats import LARGEST_WHOLE
from lengthwise.errors import BadInput, require

Function = TypeVar("Function", bound=Callable[..., Any])

WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a string",
    Path: "a path",
    type(None): "None",
    Mapping: "a mapping",
    # By name, because this file knows no torch
    "Module": "a loaded model (a pipeline's is pipeline.model)",
}
LISTS = (Sequence, Iterable)


def typed(function: Function) -> Function:
    """Check what is given to `function` against its annotations."""
    takes = signature(function)
    single = [name for name, taken in takes.parameters.items() if taken.kind is not Parameter.VAR_KEYWORD]

    # At the first call: what an annotation names may be imported later than the function
    @cache
    def kinds() -> dict[str, tuple[Any, ...]]:
        hints = get_type_hints(function)
        return {name: _alternatives(hints[name]) for name in single if name in hints}

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = takes.bind(*args, **kwargs)
        for name in given.arguments.keys() & kinds().keys():
            given.arguments[name] = _checked(name, given.arguments[name], kinds()[name])
        return function(*given.args, **given.kwargs)

    return cast(Function, checked)


def require_tokenizer(tokenizer: Any) -> None:
    """Refuse an object that is no tokenizer."""
    require(callable(tokenizer), f"tokenizer must be the model's own, as AutoTokenizer loads it, not {shortened(tokenizer)}")


def shortened(value: object) -> str:
    """A value as Python shows it, in one line and cut where it is long."""
    return reprlib.repr(value).replace("\n", " ")


def _checked(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    kind = next((kind for kind in kinds if _is_of(value, kind)), None)
    if kind is None:
        raise BadInput(f"{name} must be {' or '.join(map(_words, kinds))}, not {shortened(value)}")
    names_a_file = kind is str and Path in kinds
    require(not names_a_file or "\0" not in value, f"{name} must be a path, and none has a null character: {value!r}")
    if kind is int:
        whole = operator.index(value)
        # It may be written into a file, which would not be read again
        require(abs(whole) < LARGEST_WHOLE, f"{name} must be a whole number of at most 40 digits, not {shortened(whole)}")
        return whole
    return float(value) if kind is float else value


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return (annotation,) if get_origin(annotation) in (*LISTS, Mapping, Callable, None) else get_args(annotation)


def _is_of(value: Any, kind: Any) -> bool:
    kind, inside = get_origin(kind) or kind, get_args(kind)
    truth = type(value).__name__ in ("bool", "bool_")
    # A protocol tells its methods, which are met when they are called
    if kind in (Any, object) or getattr(kind, "_is_protocol", False):
        return True
    if kind is bool:
        return truth or (getattr(value, "ndim", 0) == 0 and value in (0, 1))
    if kind is float:
        return isinstance(value, numbers.Real) and not truth
    if kind is int:
        return not truth and getattr(value, "ndim", 0) == 0 and _is_whole(value)
    if kind not in LISTS:
        return isinstance(value, kind)
    # A string is a list of letters, which nobody means
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return False
    return not isinstance(value, list | tuple) or all(any(_is_of(one, k) for k in _alternatives(inside[0])) for one in value)


def _is_whole(value: Any) -> bool:
    # A tensor of a fraction has the method, too
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _words(kind: Any) -> str:
    outer, inside = get_origin(kind) or kind, get_args(kind)
    if outer in LISTS:
        return "a list" if inside == (object,) else f"a list, each {' or '.join(map(_words, _alternatives(inside[0])))}"
    name = getattr(outer, "__name__", outer)
    return WORDS.get(outer) or WORDS.get(name, f"a {name}")
