"""Recommendations on token ids, for models without a tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.evaluation.recommendation.candidates import Calibration
from lengthwise.evaluation.recommendation.rows import RowExam
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import TRAIN_LENGTH, make, tokens

LENGTH = 2 * TRAIN_LENGTH
ROWS = [tokens(1000, seed=0)[0], tokens(900, seed=1)[0], tokens(20, seed=2)[0]]


def recommend(name: str, **options: Any) -> lw.Recipe:
    options = {"minutes": 1e-6, "input_ids": ROWS, "show_progress": False, **options}
    return lw.recommend(make(name), None, LENGTH, **options)


def test_no_stretch_that_confirms_was_read_for_the_choice(tmp_path: Path) -> None:
    model = make("llama")
    asked = RowExam(model, None, anatomy_of(model), LENGTH, 0, tmp_path, False, "", tuple(ROWS))
    race, confirm = (asked.places[run] for run in ("race", "confirm"))
    assert race.shape[1] == confirm.shape[1] == LENGTH + asked.continuation
    assert len(race) + len(confirm) == sum(len(row) // (LENGTH + asked.continuation) for row in ROWS)
    assert not {tuple(row) for row in race.tolist()} & {tuple(row) for row in confirm.tolist()}
    assert asked.material("pmax", None)["input_ids"] is race


@pytest.mark.parametrize("name", ["t5", "llama"])
def test_token_ids_choose_without_a_tokenizer(name: str, tmp_path: Path) -> None:
    recipe = recommend(name, out=tmp_path)
    assert f"your token ids at {LENGTH} tokens" in recipe.says[0]
    assert recommend(name, out=tmp_path).says == recipe.says


def test_temperatures_are_calibrated_on_token_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = [Calibration("pmax", "model"), Calibration("answers", "model")]
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.calibrations", lambda *_: tried)
    recipe = recommend("t5", minutes=10, out=tmp_path)
    assert "pmax-model" in {line["method"] for line in recipe.evidence["race"]}
    assert [told for told in recipe.evidence["untried"] if "answers are asked for in words" in told]
    assert lw.Alignment.load(tmp_path / "pmax-model.json").provenance["text"] == "given input_ids"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_ids": ROWS[:1]}, "input_ids hold 12 stretches of 80 tokens, 64 to read and 16 that follow; at least 16"),
        ({"input_ids": [[1, 400]]}, "token 400, and the model knows 0 to 383 only"),
        ({"input_ids": None}, "without a tokenizer nothing can be asked; give input_ids"),
        ({"text": "a"}, "one of them"),
        ({"tasks": ["passkey"]}, "one of them"),
    ],
)
def test_bad_input_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        recommend("t5", **options)
