"""Declared formats: exact kinds, and one plain line that names the place, the value and what it should be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired

import pytest
from annotated_types import Gt
from typing_extensions import TypedDict

from lengthwise.common.formats import Declared, Listed, Such, Whole, checked, parse_json, parse_yaml


@dataclass(frozen=True)
class Leg(Declared):
    length: float
    joints: Annotated[int, Gt(0)] = 2


@dataclass(frozen=True)
class Animal(Declared):
    name: str
    legs: Annotated[tuple[Leg, ...], Listed] = field(default=())
    tame: bool = False
    wings: Annotated[Any, Such("a pair", lambda value: value is None or len(value) == 2)] = None

    def __post_init__(self) -> None:
        if self.name == "":
            raise ValueError("an animal needs a name")


class Zoo(TypedDict):
    size: Whole
    animals: NotRequired[list[Animal]]


def test_lists_of_entries_become_tuples_of_dataclasses() -> None:
    legs = [{"length": 1.5}, {"length": 2, "joints": 3}]
    assert checked(Animal, {"name": "ant", "legs": legs}) == Animal("ant", (Leg(1.5), Leg(2.0, 3)))
    assert checked(Zoo, {"size": 2, "later": 1}) == {"size": 2}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "it is not a JSON object"),
        ({}, "it has no 'name'"),
        ({"name": "ant", "mood": 1}, "it has an unknown key 'mood'"),
        ({"name": 5}, "its 'name' is 5, not text"),
        ({"name": ""}, "an animal needs a name"),
        ({"name": "ant", "tame": 1}, "its 'tame' is 1, not true or false"),
        ({"name": "ant", "wings": [1]}, "its 'wings' is [1], not a pair"),
        ({"name": "ant", "legs": {}}, "its 'legs' is {}, not a list"),
        ({"name": "ant", "legs": [7]}, "entry 1 of its 'legs' is 7, not an object"),
        ({"name": "ant", "legs": [{"length": 1}, {}]}, "entry 2 of its 'legs' has no 'length'"),
        ({"name": "ant", "legs": [{"length": 1, "x": 1}]}, "entry 1 of its 'legs' has an unknown key 'x'"),
        ({"name": "ant", "legs": [{"length": True}]}, "the 'length' in entry 1 of its 'legs' is true, not a number"),
        (
            {"name": "ant", "legs": [{"length": float("inf")}]},
            "the 'length' in entry 1 of its 'legs' is Infinity, not a finite number",
        ),
        ({"name": "ant", "legs": [{"length": 1, "joints": 0}]}, "the 'joints' in entry 1 of its 'legs' is 0, not above 0"),
        ({"name": ["a" * 99]}, f"its 'name' is [\"{'a' * 38}, not text"),
    ],
)
def test_the_first_fault_is_said_in_one_line(data: Any, message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        checked(Animal, data)
    assert str(refusal.value) == message


def test_a_document_says_where_it_is_wrong() -> None:
    for data, message in (
        ({"size": 2.0}, "its 'size' is 2.0, not a whole number"),
        ({"size": True}, "its 'size' is true, not a whole number"),
        ({"size": 1, "animals": [{"name": "ant"}, {"name": 5}]}, "the 'name' in entry 2 of its 'animals' is 5, not text"),
        ([], "it is not a JSON object"),
    ):
        with pytest.raises(ValueError) as refusal:
            checked(Zoo, data)
        assert str(refusal.value) == message


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"nan", "[" * 100_000])
def test_what_is_not_json_is_refused_in_one_line(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"^it is not JSON: [^\n]+$"):
        parse_json(text)


def test_what_is_not_yaml_is_refused_in_one_line() -> None:
    assert parse_yaml("a: [1, b]") == {"a": [1, "b"]}
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse_yaml("a: [")
