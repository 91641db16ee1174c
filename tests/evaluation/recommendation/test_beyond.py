"""Memory that a reading takes on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.evaluation.recommendation import beyond
from lengthwise.evaluation.recommendation.beyond import peak_memory
from lengthwise.evaluation.recommendation.exam import QuestionExam
from lengthwise.models import masks
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import make


def test_a_reading_takes_what_its_tensors_take(tokenizer: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = make("llama")
    for tokens in range(1, 80):
        masks._built(tokens, tokens, True, 0, torch.device("cpu"))
    asked = QuestionExam(model, tokenizer, anatomy_of(model, None), 4096, 0, tmp_path, False, ("passkey",), None, None, "")
    once, again, longer = (peak_memory(asked, ["log"], tokens) or 0 for tokens in (1024, 1024, 4096))
    # The states of 64 float32 numbers a token that go into a layer, and those that come out
    assert once == pytest.approx(again, rel=0.05)
    assert again > 1024 * 2 * 64 * 4
    assert 2 * again < longer < 5 * again
    assert capfd.readouterr() == ("", "")


def test_the_peak_counts_what_was_given_back() -> None:
    def read() -> None:
        torch.ones(3, 1 << 20)
        torch.ones(2, 1 << 20)

    assert beyond._peak_on_cpu(read) == 3 << 22


def test_a_device_that_does_not_count_says_nothing(tokenizer: Any, tmp_path: Path) -> None:
    model = make("t5").to("meta")
    asked = QuestionExam(model, tokenizer, anatomy_of(model, None), 300, 0, tmp_path, False, ("passkey",), None, None, "")
    assert peak_memory(asked, "none", 300) is None
