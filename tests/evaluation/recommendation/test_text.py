"""Recommendations on a text: which places are read, which confirm, and what is said in nats."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import lengthwise as lw
from lengthwise.calibration.answer_cases import FAR
from lengthwise.common.text import shipped_prose
from lengthwise.errors import BadInput
from lengthwise.evaluation.recommendation import text as places
from lengthwise.evaluation.recommendation.candidates import Calibration
from lengthwise.evaluation.recommendation.measure import TextLikelihood
from lengthwise.evaluation.recommendation.text import TextExam
from lengthwise.methods.recipe import Recipe
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from tests.conftest import TRAIN_LENGTH, make

LENGTH = 2 * TRAIN_LENGTH
PROSE = shipped_prose()[:3000]


def asked(tokenizer: Any, tmp_path: Path, name: str = "llama", text: str = PROSE) -> TextExam:
    model = make(name)
    return TextExam(model, tokenizer, anatomy_of(model, None), LENGTH, 0, tmp_path, False, text)


def recommend(tokenizer: Any, name: str = "llama", **options: Any) -> Recipe:
    return lw.recommend(make(name), tokenizer, LENGTH, show_progress=False, **{"minutes": 1e-6, "text": PROSE, **options})


def test_no_token_that_confirms_was_read_for_the_choice(tokenizer: Any, tmp_path: Path) -> None:
    it = asked(tokenizer, tmp_path)
    race, confirm = it.places["race"], it.places["confirm"]
    assert race.shape[0] == 32
    assert confirm.shape == (64, LENGTH + it.continuation)
    ids, told = it.tokens, [row[LENGTH:].tolist() for row in confirm]
    starts = [next(k for k in range(len(ids)) if ids[k : k + len(row)] == row) for row in told]
    assert min(starts) >= it.first_half
    assert tokenizer(it.material("pmax", None)["text"], add_special_tokens=False).input_ids == ids[: it.first_half]
    # A long text does not make a fit longer
    assert it.material("answers", 8)["sequences"] == 8
    assert it.material("answers", 10**6)["sequences"] == (it.first_half - LENGTH) // FAR


@pytest.mark.parametrize("name", ["t5", "llama"])
def test_truncation_is_the_plain_model_at_its_training_length(tokenizer: Any, tmp_path: Path, name: str) -> None:
    it = asked(tokenizer, tmp_path, name)
    methods: dict[str, Any] = {"none": "none", "truncate": "truncate", "log": ("log",)}
    scores: dict[tuple[str, int], list[float]] = {}
    for answer in it.answers("race", methods, [TRAIN_LENGTH, LENGTH], 4):
        scores.setdefault((answer.method, answer.length), []).append(answer.score)
    assert scores["truncate", LENGTH] == scores["none", TRAIN_LENGTH] == scores["log", TRAIN_LENGTH]
    assert scores["none", LENGTH] != scores["truncate", LENGTH]
    assert scores["log", LENGTH] != scores["none", LENGTH]


def test_a_decoder_is_scored_on_every_token_that_follows(tokenizer: Any, tmp_path: Path) -> None:
    it = asked(tokenizer, tmp_path)
    (answer,) = it.answers("race", {"none": "none"}, [LENGTH], 1)
    ids, tokens = it.places["race"][:1], it.continuation
    read = torch.cat([torch.tensor([list(it.frame.before)], dtype=torch.long), ids[:, -(LENGTH - len(it.frame.before)) :]], 1)
    with torch.no_grad():
        told = it.model(input_ids=read).logits.log_softmax(-1)[0, -tokens - 1 : -1]
    assert answer.score == pytest.approx(float(told.gather(1, ids[0, -tokens:, None]).mean()), rel=1e-5)


def test_what_was_read_is_not_read_again(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = asked(tokenizer, tmp_path).answers("race", {"none": "none"}, [LENGTH], 4)
    monkeypatch.setattr(places, "continuation_nll", lambda *_, **__: pytest.fail("read again"))
    assert asked(tokenizer, tmp_path).answers("race", {"none": "none"}, [LENGTH], 4) == first
    with pytest.raises(pytest.fail.Exception):
        asked(tokenizer, tmp_path, text=PROSE + " More.").answers("race", {"none": "none"}, [LENGTH], 4)
    # The same weights may be rotated otherwise
    other = asked(tokenizer, tmp_path)
    other.model.config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    with pytest.raises(pytest.fail.Exception):
        other.answers("race", {"none": "none"}, [LENGTH], 4)


@pytest.mark.parametrize("name", ["t5", "llama"])
def test_a_text_chooses_and_is_told_in_perplexity(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # A CPU's differs a little from one reading to the next
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.peak_memory", lambda *_: 2**30)
    recipe = recommend(tokenizer, name, out=tmp_path)
    assert (
        f"perplexity {math.exp(_fresh(recipe, recipe.method)):.4g} on your text at 64 tokens (95 % interval" in recipe.says[0]
    )
    assert "nats a token, perplexity times" in recipe.says[1]
    assert any(said.startswith("Asked: text, 4 fresh places; places that chose it") for said in recipe.says)
    assert Recipe.of_document(json.loads((tmp_path / "recipe.json").read_text()), "recipe.json") == recipe
    # Started again, it says the same
    assert recommend(tokenizer, name, out=tmp_path).says == recipe.says


def _fresh(recipe: Recipe, method: str) -> float:
    cells = recipe.evidence["fresh"]
    return float(next(cell["mean"] for cell in cells if cell["method"] == method and cell["length"] == LENGTH))


def test_temperatures_are_fitted_to_the_texts_first_half(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [Calibration("pmax", "model"), Calibration("answers", "model")]
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.calibrations", lambda *_: both)
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.ROUNDS", (4,))
    recommend(tokenizer, "t5", minutes=10, out=tmp_path, text=PROSE[:1500])
    assert "given text" in lw.Alignment.load(tmp_path / "pmax-model.json").provenance["text"]
    assert lw.Alignment.load(tmp_path / "answers-model.json").provenance["text"] == "words that stand far back in given text"


def test_another_model_in_the_same_folder_has_alignments_of_its_own(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.calibrations", lambda *_: [Calibration("pmax", "model")])
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.ROUNDS", (4,))
    for seed in (0, 1):
        model = make("t5", seed)
        recipe = lw.recommend(model, tokenizer, LENGTH, minutes=10, out=tmp_path, text=PROSE, show_progress=False)
        fingerprint = model_fingerprint(anatomy_of(model, None))
        assert lw.Alignment.load(tmp_path / "pmax-model.json").model == fingerprint
        assert "pmax-model" not in " ".join(recipe.evidence["untried"])


def test_a_gain_within_chance_is_no_gain() -> None:
    measure = TextLikelihood("a text")
    plain = [-2.0, -2.1, -1.9, -2.0]
    assert measure.beats([-1.9, -2.0, -1.8, -1.9], plain)
    assert not measure.beats([-1.8, -2.2, -1.7, -2.2], plain)
    assert measure.beats(plain, [-math.inf] * 4)
    assert not measure.beats([-1.0, -math.inf, -1.0, -1.0], plain)
    assert measure.interval([-math.inf] * 4) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "Too short. " * 5}, r"the text has 55 tokens; at least 320 are needed for 16 places with 64 before each"),
        ({"tasks": ["passkey"]}, "give a text .* or questions"),
        ({"data": "mine.jsonl"}, "give a text .* or questions"),
    ],
)
def test_bad_input_is_one_line(tokenizer: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        recommend(tokenizer, **options)
