"""Declared formats: exact kinds, and one plain line that names the place, the value and what it should be."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired

import pytest
from annotated_types import Gt
from typing_extensions import TypedDict

import lengthwise
from lengthwise.common.formats import Declared, Listed, MustBe, Whole, checked, parse_json, parse_yaml, read_json


@dataclass(frozen=True)
class Leg(Declared):
    length: float
    joints: Annotated[int, Gt(0)] = 2


@dataclass(frozen=True)
class Animal(Declared):
    name: str
    legs: Annotated[tuple[Leg, ...], Listed] = field(default=())
    tame: bool = False
    wings: Annotated[Any, MustBe("a pair", lambda value: value is None or len(value) == 2)] = None

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


DEEP = "[" * 61 + "]" * 61


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff", "can't decode byte 0xff"),
        (b"nan", "Expecting value"),
        ("[" * 100_000, "more than 60 deep"),
        (DEEP, "more than 60 deep"),
        (f'{{"a": {DEEP}}}', "more than 60 deep"),
        ("[" + "9" * 5000 + "]", "a whole number has more than 40 digits"),
        ('{"a": -' + "9" * 400 + "}", "a whole number has more than 40 digits"),
        ('{"loss": 1e999}', "the number 1e999 is too large"),
        ("[NaN]", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ('{"a": "\\ud800"}', "one half of a character"),
        ('{"\\udc00": 1}', "one half of a character"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', 'the key "c" stands twice'),
    ],
)
def test_what_is_not_json_is_refused_in_one_line(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"^it is not JSON: [^\n]*{reason}[^\n]*$") as refusal:
        parse_json(text)
    assert len(str(refusal.value)) < 200


def test_json_of_all_kinds_is_read() -> None:
    data = {"text": ["caf\u00e9 \U0001f600", ""], "number": [0, -1.5, 10**39, 1e300, True, None], "deep": [[{"a": [[]]}]]}
    assert parse_json(json.dumps(data)) == data
    assert parse_json(json.dumps(data, ensure_ascii=False).encode()) == data
    assert parse_json("[NaN, -Infinity]", finite=False)[1] == -math.inf
    assert parse_json("[" * 60 + "]" * 60)


def test_a_json_file_is_read_unless_it_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert read_json(tmp_path / "a.json") == {"a": 1}
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a pipe, not a file"):
        read_json(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "expected the node content"),
        (b"\xff", "invalid start byte"),
        ("[" * 100_000, "more than 60 deep"),
        (DEEP, "more than 60 deep"),
        ("a: " + "9" * 5000, "more than 40 digits"),
        ("a: " + "9" * 400, "more than 40 digits"),
        ("a: 1\nb: 2\na: 3", 'the key "a" stands twice'),
        ("a: .nan", "NaN is no number"),
        ("a: -.inf", "-Infinity is no number"),
        ('a: "\\ud800"', "one half of a character"),
        ("a: &x [1]\nb: [*x, *x]", "refers to a part of itself"),
        ("a: &x [*x]", "refers to a part of itself"),
        ("? [a]\n: 1", "unhashable key"),
        ("!!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_what_is_not_yaml_is_refused_in_one_line(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"^[^\n]*{reason}[^\n]*$"):
        parse_yaml(text)


def test_yaml_of_all_kinds_is_read() -> None:
    assert parse_yaml("a: [1, b]\nc: {d: 2.5, e: null}") == {"a": [1, "b"], "c": {"d": 2.5, "e": None}}
    assert parse_yaml("caf\u00e9: \u00e9".encode()) == {"caf\u00e9": "\u00e9"}


def test_all_json_and_yaml_goes_through_one_reader() -> None:
    source = Path(lengthwise.__file__).parent
    parses = re.compile(r"json\.loads?\(|JSONDecoder|yaml\.(safe_|full_)?load|parse_raw|validate_json")
    # The second is a script for a process without lengthwise
    assert {file.name for file in source.rglob("*.py") if parses.search(file.read_text())} == {"formats.py", "run_plain.py"}
