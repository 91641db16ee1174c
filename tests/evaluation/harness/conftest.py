"""Files in the layout of LongBench-E, and a harness of few tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DIGITS = "31415926535897932384626433832795"


def document(**fields: Any) -> dict[str, Any]:
    kept = {"input": "Who?", "context": "A text. " * 40, "answers": [DIGITS], "length": 100, "all_classes": None}
    return {**kept, "language": "en", "dataset": "any", "_id": "1", **fields}


def write(folder: Path, name: str, *documents: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}_e.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in documents), encoding="utf-8")
    return path


@pytest.fixture
def few_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The harness with LongBench alone, because reading all its thousands of tasks takes long; nothing kept in a home."""
    import datasets
    import lm_eval.tasks
    from lm_eval.tasks._index import TaskIndex

    stock, every = Path(lm_eval.tasks.__file__).parent, TaskIndex._iter_yaml_files

    def few(root: Path) -> Iterator[Path]:
        return every(root / "longbench" if root == stock else root)

    monkeypatch.setattr(TaskIndex, "_iter_yaml_files", staticmethod(few))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("lm_eval.__main__.setup_logging", lambda: None)
