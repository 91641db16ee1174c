"""Declared file formats: plain data in, typed values out, one plain line where the two do not fit.

A format is a frozen dataclass below `Declared` (a line of a file, an entry of a list) or a TypedDict (a whole document), and
pydantic checks what was read against it. Text becomes plain data in `parse_json` and `parse_yaml` alone, which refuse what only
an attack or damage makes: lists within lists without end, numbers of hundreds of digits, a key that stands twice.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, cast

from lengthwise.common.files import read_file
from lengthwise.errors import BadInput, require

Format = TypeVar("Format")
SHOWN = 40  # letters of a value in a message
NOT_JSON = "it is not JSON"
DEEPEST = 60  # lists and objects within each other
LARGEST_WHOLE = 10**40  # far beyond all counts, and a float can hold it
# What JSON has in it where a value of it may be refused: most has not, and is spared a second look
SUSPECT = re.compile(r"\\u[dD]|\d{41}|NaN|Infinity")
# What a value should have been, by pydantic's name of the error without the endings _type and _parsing
SHOULD_BE = {
    "bool": "true or false",
    "dataclass": "an object",
    "dict": "an object",
    "finite_number": "a finite number",
    "float": "a number",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int": "a whole number",
    "int_from_float": "a whole number",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le:g}",
    "list": "a list",
    "literal_error": "{expected}",
    "must_be": "{what}",
    "string": "text",
    "too_short": "a list of {min_length} or more",
    "tuple": "a list",
}


class Declared:
    """Base of dataclasses that are read from files: values of exactly the declared kinds, finite numbers, no unknown keys."""

    __pydantic_config__: ClassVar[Any] = {"strict": True, "extra": "forbid", "allow_inf_nan": False}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        # Strict of its values (JSON's true is no number), yet made from a dict, which pydantic's strict dataclasses refuse
        return {**handler(source), "strict": False}


@dataclass(frozen=True)
class MustBe:
    """Marks a field, in Annotated: a value is taken as it is where `holds` is true, and refused elsewhere."""

    what: str  # ends the sentence "its 'x' is 5, not ..."
    holds: Callable[[Any], bool]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import PydanticCustomError, core_schema

        def check(value: Any) -> Any:
            if not self.holds(value):
                raise PydanticCustomError("must_be", "not {what}", {"what": self.what})
            return value

        return core_schema.no_info_plain_validator_function(check)


class Listed:
    """Marks a field, in Annotated, whose tuple is a list in the file."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: Any) -> Any:
        return {**handler(source), "strict": False}


Whole = Annotated[int, MustBe("a whole number", lambda value: type(value) is int)]


def read_json(path: str | Path, *, finite: bool = True) -> Any:
    """The plain data of a JSON file; an OSError where it cannot be read, a ValueError where it is no JSON."""
    return parse_json(read_file(path), finite=finite)


def read_format(path: Path, wanted: str, what: str, otherwise: str) -> dict[str, Any]:
    """The object in a JSON file whose `format` is the wanted one; BadInput says that the file is not `what`, and what to do."""
    try:
        document = read_json(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} is not {what}: {getattr(error, 'strerror', None) or error}; {otherwise}") from None
    other = document.get("format") if isinstance(document, dict) else None
    require(other == wanted, f"{path} is not {what}: its format is {other!r}, not {wanted!r}; {otherwise}")
    return dict(document)


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """The plain data of a JSON text; a ValueError where it is none. Without `finite`, NaN and Infinity are numbers too."""
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        data = json.loads(decoded, object_pairs_hook=_unique, parse_float=_float)
        suspect = SUSPECT.search(decoded) or decoded.count("[") + decoded.count("{") > DEEPEST
        return _plain(data, finite) if suspect else data
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{NOT_JSON}: {_reason(error)}") from None


def parse_yaml(text: str | bytes) -> Any:
    """The plain data of a YAML text; a ValueError where it is none."""
    import yaml

    try:
        return _plain(yaml.load(text, _yaml_loader()), finite=True)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(_reason(error)) from None


@cache
def _yaml_loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Plain data only, without a key that stands twice and without references, which make a small file endless."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("it refers to a part of itself by *, which settings do without")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = (self.construct_object(key, deep=True) for key, _ in node.value)
            _unique((key, None) for key in keys if isinstance(key, Hashable))
            return super().construct_mapping(node, deep)

    return Loader


def _unique(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    pairs = list(pairs)
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shown(twice)} stands twice in one object")
    return mapping


def _float(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise ValueError(f"the number {digits[:SHOWN]} is too large")
    return value


def _plain(data: Any, finite: bool) -> Any:
    """The data itself, where each value of it can be computed with and written again; else a ValueError."""
    level = [data]
    for _ in range(DEEPEST + 1):
        if not level:
            return data
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value
                below += value.values()
            elif isinstance(value, list | tuple | set):
                below += value
            elif isinstance(value, str):
                if not value.isascii():
                    value.encode()
            elif isinstance(value, float):
                if finite and not math.isfinite(value):
                    raise ValueError(f"{shown(value)} is no number")
            elif isinstance(value, int) and abs(value) >= LARGEST_WHOLE:
                raise ValueError("a whole number has more than 40 digits")
        level = below
    raise ValueError(f"its lists and objects are more than {DEEPEST} deep")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"its lists and objects are more than {DEEPEST} deep"
    if isinstance(error, UnicodeEncodeError):
        return "it holds one half of a character (a lone surrogate)"
    if "int_max_str_digits" in str(error):
        return "a whole number has more than 40 digits"
    if isinstance(error, json.JSONDecodeError) and error.lineno == 1:
        return f"{error.msg} at letter {error.pos + 1}"
    return " ".join(str(error).split())


def checked(kind: type[Format], data: Any, in_words: Callable[[Any], str] | None = None) -> Format:
    """Plain data as a value of a declared format; a ValueError of one line says what does not fit.

    What pydantic tells of the first fault becomes that line by `in_words`, unless a check of the format's own has said it.
    """
    adapter = _adapter(cast(Any, kind))
    try:
        return cast(Format, adapter.validate_python(data))
    except ValueError as error:
        fault = cast(Any, error).errors(include_url=False)[0]
    if fault["type"] == "value_error":
        raise ValueError(str(fault["ctx"]["error"]))
    raise ValueError((in_words or _in_words)(fault))


def _in_words(fault: Any) -> str:
    kind, place = fault["type"], fault["loc"]
    if kind == "missing":
        return f"{_place(place[:-1])} has no {place[-1]!r}"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{_place(place[:-1])} has an unknown key {place[-1]!r}"
    if not place and kind in ("dataclass_type", "dict_type"):
        return "it is not a JSON object"
    return f"{_place(place)} is {shown(fault['input'])}, not {should_be(fault)}"


def should_be(fault: Any) -> str:
    """In words, the kind of value that one of pydantic's errors says was expected."""
    words = SHOULD_BE.get(fault["type"].removesuffix("_type").removesuffix("_parsing"))
    return str(fault["msg"]) if words is None else words.format(**fault.get("ctx", {}))


def shown(value: Any) -> str:
    """A value as its file has it, cut where it is long."""
    return json.dumps(value, default=repr)[:SHOWN]


def _place(place: tuple[str | int, ...]) -> str:
    """Where a fault is: "the 'tau' in entry 2 of its 'temperatures'"."""
    words = "it"
    for part in place:
        if isinstance(part, int):
            words = f"entry {part + 1} of {words}"
        else:
            words = f"its {part!r}" if words == "it" else f"the {part!r} in {words}"
    return words


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
