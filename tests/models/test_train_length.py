"""Which training length is taken for a model, and what is said of it."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import transformers as tf

from lengthwise.cli.options import loaded_model
from lengthwise.errors import BadInput
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.train_length import CHECKPOINTS, CONFIG, train_length_of
from tests.conftest import T5_SIZES

SIZES = {**T5_SIZES, "vocab_size": 500, "num_layers": 1, "n_positions": 512}
UNTOLD = {name: size for name, size in SIZES.items() if name != "n_positions"}


def t5(name: str = "", kind: str = "T5", **sizes: Any) -> Any:
    model = getattr(tf, f"{kind}EncoderModel")(getattr(tf, f"{kind}Config")(**sizes or SIZES))
    model.encoder.config._name_or_path = name
    return model


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("google/flan-t5-small", 2048),
        ("models/google/flan-t5-XL/", 2048),
        ("C:\\models\\flan-t5-base", 2048),
        ("google/byt5-large", 1024),
        ("t5-small", 512),
        ("google/flan-ul2", 2048),
        ("google/ul2", 512),
    ],
)
def test_a_checkpoint_of_the_table_is_known_by_its_name(name: str, expected: int) -> None:
    trained = anatomy_of(t5(name)).trained
    assert (trained.tokens, trained.is_known) == (expected, True)
    assert any(source in trained.said for _, source in CHECKPOINTS.values())


@pytest.mark.parametrize("name", ["", "me/flan-t5-small-finetuned-xsum", "flan_t5_small", "flan-t5-small/checkpoint-500"])
def test_a_tuned_copy_is_what_its_config_says_and_may_be_wrong(name: str) -> None:
    trained = anatomy_of(t5(name)).trained
    assert (trained.tokens, trained.source, trained.is_known, trained.said) == (512, CONFIG, False, "")


@pytest.mark.parametrize(
    ("kind", "sizes", "expected"),
    [("T5", UNTOLD, 512), ("MT5", UNTOLD, 1024), ("UMT5", UNTOLD, 512), ("T5", {**UNTOLD, "vocab_size": 384}, 1024)],
)
def test_without_a_word_it_is_what_the_family_was_pretrained_on(kind: str, sizes: dict[str, Any], expected: int) -> None:
    trained = anatomy_of(t5("mine", kind, **sizes)).trained
    assert (trained.tokens, trained.is_known) == (expected, False)
    assert all(part in trained.said for part in ("config does not tell", "arXiv"))


@pytest.mark.parametrize("told", ["x", [512], float("inf"), float("nan")])
def test_a_length_that_is_no_number_is_refused(told: Any) -> None:
    with pytest.raises(BadInput, match="as its training length, which is no number; give it as train_length"):
        train_length_of(SimpleNamespace(n_positions=told), "t5")
    with pytest.raises(BadInput, match="as its training length, which is no number; give it as train_length"):
        train_length_of(SimpleNamespace(max_position_embeddings=told), "llama")


def test_the_table_is_for_t5s_alone() -> None:
    config = SimpleNamespace(_name_or_path="flan-t5-small", max_position_embeddings=4096)
    assert train_length_of(config, "llama").tokens == 4096


def test_commands_say_what_was_taken_unless_it_was_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {name: t5(name) for name in ("google/flan-t5-small", "mine")}
    monkeypatch.setattr(importlib.import_module("lengthwise.models.load"), "load", lambda name, *_: (models[name], None))
    flan, _ = loaded_model("google/flan-t5-small", "auto", None, None)
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert all(part in told for part in ("training length 2,048", "issue 36", "--train-length"))
    loaded_model("google/flan-t5-small", "auto", None, 512)
    loaded_model("mine", "auto", None, None)
    assert capsys.readouterr().err == ""
    assert anatomy_of(flan, 512).train_length == 512
