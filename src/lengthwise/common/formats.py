"""Declared file formats: plain data in, typed values out, one plain line where the two do not fit.

A format is a frozen dataclass below `Declared` (a line of a file, an entry of a list) or a TypedDict (a whole document), and
pydantic checks what was read against it. Text becomes plain data in `parse_json` and `parse_yaml` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, cast

Format = TypeVar("Format")
SHOWN = 40  # letters of a value in a message
NOT_JSON = "it is not JSON"
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
    "string": "text",
    "such": "{what}",
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
class Such:
    """Marks a field, in Annotated, whose values are taken as they are where `holds` is true, and refused elsewhere."""

    what: str  # ends the sentence "its 'x' is 5, not ..."
    holds: Callable[[Any], bool]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import PydanticCustomError, core_schema

        def check(value: Any) -> Any:
            if not self.holds(value):
                raise PydanticCustomError("such", "not {what}", {"what": self.what})
            return value

        return core_schema.no_info_plain_validator_function(check)


class Listed:
    """Marks a field, in Annotated, whose tuple is a list in the file."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: Any) -> Any:
        return {**handler(source), "strict": False}


Whole = Annotated[int, Such("a whole number", lambda value: type(value) is int)]


def parse_json(text: str | bytes) -> Any:
    """The plain data of a JSON text; a ValueError where it is none."""
    try:
        return json.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{NOT_JSON}: {' '.join(str(error).split())}") from None


def parse_yaml(text: str) -> Any:
    """The plain data of a YAML text; a ValueError where it is none."""
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


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
    """What the value of one of pydantic's errors should have been."""
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
