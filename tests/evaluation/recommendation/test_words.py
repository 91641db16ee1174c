"""What a recommendation says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.evaluation.recommendation.measure import ShareRight
from lengthwise.evaluation.recommendation.words import Findings


def answers(length: int, **rights: int) -> list[Any]:
    """Four answers a method, so many of them right."""
    return [
        SimpleNamespace(method=method, task="passkey", length=length, index=i, score=float(i < right), seconds=1.0)
        for method, right in rights.items()
        for i in range(4)
    ]


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (3, "75 % without it."),
        (0, "0 % without it: it cannot do this there either, so the questions tell little of the length."),
    ],
)
def test_questions_that_a_model_cannot_answer_at_its_training_length_tell_little(plain: int, said: str) -> None:
    known: dict[str, Any] = {"memory": {}, "tasks": {}, "asked": ["passkey"], "untried": [], "hurried": False, "longer": []}
    fresh, inside = answers(1024, none=0, log=2), answers(512, none=plain, log=plain)
    words = Findings("log", "log", ShareRight("at 1,024 tokens"), fresh, inside, trained=512, **known).words()
    assert any(word.startswith("At its training length, 512 tokens: ") and word.endswith(said) for word in words)
