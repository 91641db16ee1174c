"""Files in the layout of LongBench-E."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DIGITS = "31415926535897932384626433832795"


def document(**fields: Any) -> dict[str, Any]:
    kept = {"input": "Who?", "context": "A text. " * 40, "answers": [DIGITS], "length": 100, "all_classes": None}
    return {**kept, "language": "en", "dataset": "any", "_id": "1", **fields}


def write(folder: Path, name: str, *documents: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}_e.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in documents), encoding="utf-8")
    return path
