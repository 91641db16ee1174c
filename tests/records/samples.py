"""A record and a config to make others of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lengthwise.records import Record

RECORD = Record("m", "none", "passkey", "", 512, 0, 0, 510, 0.25, "a 5", "5", 1.0, 0.1)
CONFIG: dict[str, Any] = {
    "format": "lengthwise.run/1",
    "model": {"family": "t5", "name": "m", "layers": 2, "heads": 4, "key_size": 8, "weights": "abc"},
    "settings": {"seed": 0, "dtype": "float32", "train_length": 512},
    "methods": {"none": None},
    "reads": {"none": "whole"},
    "tasks": {"line": "names of flowers"},
    "data": {},
    "given": {"names of flowers": None},
    "code": {},
    "made_with": {"lengthwise": "0.1.0"},
}


def records(n: int, **changes: Any) -> list[Record]:
    return [replace(RECORD, index=index, **changes) for index in range(n)]


def changed(part: str, **changes: Any) -> dict[str, Any]:
    return {**CONFIG, part: {**CONFIG[part], **changes}}
