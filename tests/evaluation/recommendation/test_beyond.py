"""Memory that a reading takes on a CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lengthwise.evaluation.recommendation.asked import AskedQuestions
from lengthwise.evaluation.recommendation.beyond import peak_memory
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import TRAIN_LENGTH, make


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not count a process's memory by its highest")
def test_a_reading_takes_memory_by_its_length_on_a_cpu(tokenizer: Any, tmp_path: Path) -> None:
    model = make("llama")
    asked = AskedQuestions(model, tokenizer, anatomy_of(model, None), 4096, 0, tmp_path, False, ("passkey",), None, None, "")
    # The first reading also takes what later ones find
    _, short, long = (peak_memory(asked, ["log"], tokens) or 0 for tokens in (TRAIN_LENGTH, 1024, 4096))
    assert short > 0
    assert 2 * short < long < 8 * short


def test_a_system_that_does_not_count_says_nothing(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("t5")
    asked = AskedQuestions(model, tokenizer, anatomy_of(model, None), 300, 0, tmp_path, False, ("passkey",), None, None, "")

    def no_such_file(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError("/proc")

    monkeypatch.setattr(Path, "write_text", no_such_file)
    assert peak_memory(asked, "none", 300) is None
