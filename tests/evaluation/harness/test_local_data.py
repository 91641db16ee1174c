"""LongBench-E's tasks of the harness on local files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.errors import BadInput
from lengthwise.tasks.longbench_e import TASKS
from tests.evaluation.harness.conftest import document, write

pytest.importorskip("lm_eval", reason="lm-eval is not installed; pip install 'lengthwise[lm-eval]'")
import lm_eval.tasks

from lengthwise.evaluation.harness.local_data import with_question, write_tasks

STOCK = Path(lm_eval.tasks.__file__).parent


def test_local_tasks_take_the_stock_prompts_and_every_task_has_some(tmp_path: Path) -> None:
    for name in TASKS:
        write(tmp_path / "data", name, document())
    out = tmp_path / "tasks"
    out.mkdir()
    assert write_tasks(tmp_path / "data", out) == [f"longbench_{name}_e" for name in TASKS]
    text = (out / "trec_e.yaml").read_text(encoding="utf-8")
    assert json.dumps(str(STOCK / "longbench" / "trec_e.yaml")) in text
    assert json.dumps(str(tmp_path / "data" / "trec_e.jsonl")) in text


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"length": "many"}, "line 1 of .*: 'length' should be the number of words"),
        ({"answers": "Ann"}, "line 1 of .*: 'answers' should be a list of right answers"),
        ({"context": ""}, "line 1 of .*: 'context' is empty"),
    ],
)
def test_files_of_another_layout_are_refused(fields: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    write(tmp_path, "lcc", document(**fields))
    with pytest.raises(BadInput, match=complaint):
        write_tasks(tmp_path, tmp_path)


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"holds no file such as qasper_e.jsonl as in LongBench-E or 4096/.*; give the folder that does"
    ):
        write_tasks(tmp_path, tmp_path)


def test_the_column_input_is_called_question_where_it_is_not_yet() -> None:
    ours = SimpleNamespace(column_names=["input"], rename_column=lambda *names: names)
    assert with_question(ours) == ("input", "question")
    theirs = SimpleNamespace(column_names=["question", "input"])
    assert with_question(theirs) is theirs
