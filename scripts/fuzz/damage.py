"""Ways to damage a file: what disks, careless editors and attackers do to JSON, JSON lines, YAML, text and weights."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

HOLE = "@@hole@@"
# As they stand in a file: most cannot be written by json.dumps
VALUES = {
    "deep lists": "[" * 100_000,
    "deep lists, closed": "[" * 3000 + "]" * 3000,
    "deep objects": '{"a":' * 2000 + "1" + "}" * 2000,
    "5,000 digits": "9" * 5000,
    "400 digits": "-" + "9" * 400,
    "1e999": "1e999",
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "half a character": '"\\ud800"',
    "null": "null",
    "true": "true",
    "minus one": "-1",
    "zero": "0",
    "a fraction": "0.5",
    "2**63": str(2**63),
    "empty text": '""',
    "text": '"seven"',
    "long text": '"' + "x" * 100_000 + '"',
    "line breaks": '"a\\nb\\u001b[31m"',
    "an empty list": "[]",
    "an empty object": "{}",
    "a list": "[1, [2], null]",
    "an object": '{"a": 1}',
    "a path out": '"../../outside"',
}
BYTES = (b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"{", b'"', b"\n\n", b"\r", b"9" * 5000, b"-", b"e999")


def damage(path: Path, random: Random) -> str:
    """Damage the file at a path; says how."""
    in_place = [_missing, _as_folder, _as_pipe, _as_loop]
    kind = random.choices(("place", "bytes", "values"), (1, 4, 7))[0]
    if kind == "place":
        change = random.choice(in_place)
        change(path)
        return change.__name__.strip("_").replace("_", " ")
    content = path.read_bytes()
    ways = _value_ways(path.suffix) if kind == "values" else []
    name, new = random.choice(ways or BYTE_WAYS)(content, random)
    path.write_bytes(new)
    return name


def _missing(path: Path) -> None:
    path.unlink()


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _as_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


Way = Callable[[bytes, Random], tuple[str, bytes]]


def _flip(content: bytes, random: Random) -> tuple[str, bytes]:
    changed = bytearray(content)
    for _ in range(random.randint(1, 8)):
        at = random.randrange(len(changed)) if changed else 0
        changed[at : at + 1] = bytes([random.randrange(256)])
    return "bytes flipped", bytes(changed)


def _cut(content: bytes, random: Random) -> tuple[str, bytes]:
    return "cut off", content[: random.randrange(len(content) + 1)]


def _empty(content: bytes, random: Random) -> tuple[str, bytes]:
    return "emptied", b""


def _insert(content: bytes, random: Random) -> tuple[str, bytes]:
    what, at = random.choice(BYTES), random.choice((0, random.randrange(len(content) + 1), len(content)))
    return f"{what[:8]!r} inserted", content[:at] + what + content[at:]


def _twice(content: bytes, random: Random) -> tuple[str, bytes]:
    return "twice in a row", content + content


def _swap(content: bytes, random: Random) -> tuple[str, bytes]:
    a, b = sorted(random.randrange(len(content) + 1) for _ in range(2))
    return "parts exchanged", content[b:] + content[a:b] + content[:a]


BYTE_WAYS: list[Way] = [_flip, _flip, _cut, _cut, _empty, _insert, _insert, _twice, _swap]


def _value_ways(suffix: str) -> list[Way]:
    ways: dict[str, list[Way]] = {".json": [_json], ".jsonl": [_json_line], ".yaml": [_yaml], ".safetensors": [_header]}
    return ways.get(suffix, [])


def _json(content: bytes, random: Random) -> tuple[str, bytes]:
    name, text = _other_value(json.loads(content), random)
    return name, text.encode()


def _json_line(content: bytes, random: Random) -> tuple[str, bytes]:
    lines = content.splitlines() or [b"{}"]
    at = random.randrange(len(lines))
    name, text = _other_value(json.loads(lines[at]), random)
    lines[at] = text.encode()
    return name, b"\n".join(lines) + b"\n"


def _yaml(content: bytes, random: Random) -> tuple[str, bytes]:
    lines = content.decode().splitlines()
    at, name = random.randrange(len(lines)), random.choice(list(VALUES))
    lines[at] = f"{lines[at].partition(':')[0]}: {VALUES[name]}"
    return name, "\n".join(lines).encode()


def _header(content: bytes, random: Random) -> tuple[str, bytes]:
    """The header of a safetensors file: its length, or a value in it."""
    length = struct.unpack("<Q", content[:8])[0]
    if random.random() < 0.2:
        wrong = random.choice((0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1))
        return f"a header of {wrong} bytes", struct.pack("<Q", wrong) + content[8:]
    name, text = _other_value(json.loads(content[8 : 8 + length]), random, ['"I32"', '"F16"', '"BOOL"', "[1]", "[0, 4]"])
    header = text.encode()
    return f"header: {name}", struct.pack("<Q", len(header)) + header + content[8 + length :]


def _other_value(data: Any, random: Random, more: list[str] | None = None) -> tuple[str, str]:
    """A document with one of its values, or a key, changed for one that does not belong there."""
    holder, key = random.choice(_places(data) or [([data], 0)])
    if isinstance(holder, dict) and random.random() < 0.25:
        return _other_key(data, holder, key, random)
    name = random.choice([*VALUES, *(more or ())])
    holder[key] = HOLE
    # The document itself may be what is changed
    text = json.dumps(holder[0] if data is not holder and not _places(data) else data)
    return f"{key}: {name}", text.replace(f'"{HOLE}"', VALUES.get(name, name))


def _other_key(data: Any, holder: dict[str, Any], key: str, random: Random) -> tuple[str, str]:
    value = holder[key]
    way = random.choice(("no key", "a key twice", "a key too many"))
    if way == "no key":
        del holder[key]
    elif way == "a key too many":
        holder["unheard_of"] = 1
    else:
        holder[HOLE] = value
    return f"{key}: {way}", json.dumps(data).replace(HOLE, key)


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every (list or object, index or key) of a document, those within each other too."""
    keys: Any = data.keys() if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [(data, key) for key in keys] + [place for key in keys for place in _places(data[key])]
