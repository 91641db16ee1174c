"""What a recommendation measures on a GPU alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lengthwise.evaluation.recommendation.beyond import peak_memory
from lengthwise.evaluation.recommendation.exam import QuestionExam
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import TRAIN_LENGTH, make


def test_longer_inputs_take_more_memory(tokenizer: Any, tmp_path: Path) -> None:
    model = make("llama").cuda()
    asked = QuestionExam(model, tokenizer, anatomy_of(model, None), 2048, 0, tmp_path, False, ("passkey",), None, None, "")
    short, long = peak_memory(asked, "none", TRAIN_LENGTH), peak_memory(asked, ["log"], 2048)
    assert short is not None
    assert long is not None
    # The last hidden states alone, in float32
    assert 0 < short < 2048 * 32 * 4 < long
