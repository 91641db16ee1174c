"""Data sets of the hub: a folder on disk is one to the library, too, so nothing is downloaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks import TASKS
from lengthwise.tasks.material.hub import is_hub


def test_the_rows_of_a_data_set_are_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
    folder = tmp_path / "set"
    folder.mkdir()
    for split in ("train", "test"):
        ctxs = [{"title": split, "text": "Ann won.", "isgold": True, "hasanswer": True}]
        rows = [{"question": f"who won {k}?", "answers": ["Ann"], "ctxs": ctxs} for k in range(2)]
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task, tokenizer = TASKS["multi_document_qa"], ByT5Tokenizer()
    first, second = task.read(tokenizer, Path(f"hub:{folder}"))
    assert "(test) Ann won." in first.prompt
    assert (second.question, second.target, second.depth) == ("Question: who won 1? Answer:", "Ann", 0.0)
    assert "(train) Ann won." in task.read(tokenizer, Path(f"hub:{folder}:default@train"))[0].prompt
    with pytest.raises(BadInput, match=r"cannot read hub:.*@dev: .*dev"):
        task.read(tokenizer, Path(f"hub:{folder}@dev"))
    with pytest.raises(BadInput, match=r"row 1 of hub:.* has no key 'prompt'"):
        TASKS["passkey"].read(tokenizer, Path(f"hub:{folder}"))


def test_names_that_name_nothing_are_refused() -> None:
    for name in ("hub:", "hub:a:b:c", "hub:@test"):
        with pytest.raises(BadInput, match="names no data set; write hub:NAME"):
            TASKS["line"].read(None, Path(name))
    assert not is_hub(Path("folder/hub:x"))


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadInput, match=r"hub:x needs the package datasets.*pip install 'lengthwise\[train\]'"):
        TASKS["line"].read(None, Path("hub:x"))
