"""The worked example of docs/evaluating.md, "Adding a task", run as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.tasks import TASKS, Task
from tests.helpers.answering import answering

PAGE = Path(__file__).parents[2] / "docs" / "evaluating.md"


@pytest.fixture
def colour() -> Task:
    section = PAGE.read_text(encoding="utf-8").split("\n## Adding a task\n")[1].split("\n## ")[0]
    module, line = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(module, names)
    listed = eval("{" + line + "}", {"Task": Task, "colour": SimpleNamespace(**names)})
    assert listed["colour"] == names["COLOUR"]
    return listed["colour"]


def test_the_example_makes_prompts_as_every_task_must(colour: Task, pieces: Any) -> None:
    samples = colour.samples(pieces, 600, 5, 0, depth=0.5)
    assert samples == colour.samples(pieces, 600, 5, 0, depth=0.5)
    for sample in samples:
        assert 0.98 * 600 <= sample.tokens == len(pieces(sample.prompt).input_ids) <= 600
        assert sample.prompt.endswith(sample.question)
        assert f"The door is {sample.target}." in sample.prompt
        assert (colour.mark(f"it is {sample.target}", sample), colour.mark("no idea", sample)) == (1.0, 0.0)


def test_the_example_can_be_evaluated(colour: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "colour", colour)
    records = lw.evaluate(answering("t5"), ByT5Tokenizer(), ["none"], ["colour"], [240], samples=2, show_progress=False)
    assert [(record.task, record.length, record.score) for record in records] == [("colour", 240, 0.0)] * 2
