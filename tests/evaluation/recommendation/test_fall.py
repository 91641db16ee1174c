"""Where the plain model begins to fall, of a model whose training length is a guess."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lengthwise as lw
from lengthwise.evaluation.recommendation.fall import fall_in_words, first_fall
from lengthwise.evaluation.recommendation.measure import ShareRight
from tests.conftest import TRAIN_LENGTH, make
from tests.evaluation.recommendation.test_recommend import answering as answering

ALL, HALF, NO = [1.0] * 16, [1.0, 0.0] * 8, [0.0] * 16


@pytest.mark.parametrize(
    ("scores", "fall"),
    [
        ({512: ALL, 1024: ALL, 2048: NO}, 2048),
        ({512: ALL, 1024: HALF, 2048: NO}, 1024),
        ({512: HALF, 1024: HALF, 2048: ALL}, None),
        ({512: ALL, 1024: [0.0, *ALL[1:]]}, None),
        ({512: ALL, 1024: NO, 2048: ALL}, None),
        ({512: ALL, 1024: ALL, 2048: [*NO[:5], *ALL[5:]]}, 2048),
    ],
)
def test_a_fall_is_more_than_chance(scores: dict[int, list[float]], fall: int | None) -> None:
    assert first_fall(scores) == fall


def test_words_say_from_where_it_falls_and_what_it_may_have_been_trained_on() -> None:
    said = fall_in_words({512: ALL, 1024: ALL, 2048: NO}, ShareRight("questions"), "as its config says")
    assert "512, as its config says" in said
    assert "100 % at 512 tokens, 100 % at 1,024 tokens, 0 % at 2,048 tokens" in said
    assert "begins to fall between 1,024 and 2,048, there by -100 points" in said
    assert said.endswith("Up to 1,024 it needs no help: --train-length 1024 leaves it alone there.")
    said = fall_in_words({512: ALL, 1024: NO}, ShareRight("questions"), "as its config says")
    assert "between 512 and 1,024" in said
    assert "--train-length" not in said
    assert fall_in_words({512: ALL, 1024: ALL}, ShareRight("questions"), "s").endswith("not fall behind by more than chance.")


def recommend(tokenizer: Any, monkeypatch: pytest.MonkeyPatch, name: str = "t5", **options: Any) -> lw.Recipe:
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.calibrations", lambda *_: [])
    options = {"tasks": ["passkey"], "minutes": 10, "show_progress": False, **options}
    return lw.recommend(make(name, 0), tokenizer, 4 * TRAIN_LENGTH, **options)


def falls_beyond(length: int) -> Callable[[str, int, str], float]:
    return lambda method, n, _: float(method == "log" or n <= length)


def test_a_t5_is_asked_at_lengths_in_between(tokenizer: Any, answering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = answering(falls_beyond(2 * TRAIN_LENGTH))
    recipe = recommend(tokenizer, monkeypatch)
    assert f"begins to fall between {2 * TRAIN_LENGTH} and {4 * TRAIN_LENGTH}" in recipe.says[-1]
    assert [[n, told[0], count] for n, told, count in recipe.evidence["plain_by_length"]] == [
        [TRAIN_LENGTH, 1.0, 8],
        [2 * TRAIN_LENGTH, 1.0, 8],
        [4 * TRAIN_LENGTH, 0.0, 8],
    ]
    assert recipe.provenance["train_length"] == "as its config says"
    # Nothing but the plain model is asked where the race does not ask
    assert {call[1] for call in calls if 2 * TRAIN_LENGTH in call[2]} == {("none",)}


@pytest.mark.parametrize(("name", "options"), [("t5", {"train_length": TRAIN_LENGTH}), ("llama", {})])
def test_a_model_whose_training_length_is_known_is_not(
    tokenizer: Any, answering: Any, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any]
) -> None:
    calls = answering(falls_beyond(2 * TRAIN_LENGTH))
    recipe = recommend(tokenizer, monkeypatch, name, **options)
    assert not any("begins to fall" in line for line in recipe.says)
    assert all(2 * TRAIN_LENGTH not in call[2] for call in calls)


def test_without_time_it_is_left_out_and_said(tokenizer: Any, answering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(falls_beyond(TRAIN_LENGTH))
    recipe = recommend(tokenizer, monkeypatch, minutes=1e-6)
    assert "the lengths from which on the plain model falls (no time)" in recipe.evidence["untried"]
    assert recipe.evidence["plain_by_length"] == []
