"""The verb and its command: what is written, that a killed run goes on, and how it refuses."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import transformers

import lengthwise as lw
from lengthwise.analysis.records import read_analysis
from lengthwise.common.text import shipped_prose
from tests.conftest import TRAIN_LENGTH, make

MODULE = importlib.import_module("lengthwise.analysis.analyse")
LENGTHS = [48, 64]
KINDS = ("svg", "png") if MODULE.png.available() else ("svg",)
# Where there is no matplotlib, all but the PNG files can be tested
pytestmark = pytest.mark.filterwarnings("ignore:PNG figures need")


@pytest.fixture
def without_png(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest here."""
    monkeypatch.setattr(MODULE.png, "available", lambda: False)


quickly = pytest.mark.usefixtures("without_png")


def analyse(out: Path, model: Any = None, lengths: Any = LENGTHS, **options: Any) -> lw.Analysis:
    options = {"text": shipped_prose()[:4000], "show_progress": False, **options}
    return lw.analyse(make("t5") if model is None else model, transformers.ByT5Tokenizer(), lengths, out, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("analysis") / "whole"
    analyse(out, name="tiny")
    return out


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_tables_figures_and_words_are_written(whole: Path) -> None:
    figures = ("sharpness", "heads", "qq", "temperatures", "bias")
    tables = ("sharpness", "logits", "gaussian", "temperatures", "heads", "bias", "sights")
    assert names(whole) == {
        "analysis.json",
        "analysis.md",
        "lengths.jsonl",
        "aligned.jsonl",
        "answers.jsonl",
        *(f"tables/{name}.csv" for name in tables),
        *(f"figures/{name}.{kind}" for name in figures for kind in KINDS),
    }
    document = json.loads((whole / "analysis.json").read_text())
    assert document["format"] == "lengthwise.analysis/1"
    assert (document["model"]["name"], document["settings"]["text"]) == ("tiny", "given text")
    # No place of this machine
    assert str(whole.parent) not in (whole / "analysis.json").read_text() + (whole / "analysis.md").read_text()


def test_the_training_length_is_measured_too(whole: Path) -> None:
    found = read_analysis(whole)
    assert [one.length for one in found.lengths] == [TRAIN_LENGTH, *LENGTHS]
    # 4,096 tokens would be 128 sequences of the first
    assert [one.sequences for one in found.lengths] == [16, 16, 16]
    trained = found.temperatures[0]
    assert (trained.pmax, trained.entropy, trained.log_law) == (1.0, 1.0, 1.0)
    assert trained.proposition_2 == pytest.approx(1.0)
    assert trained.proposition_1 == pytest.approx(1.0) or "larger one" in trained.why["proposition_1"]
    assert len(found.heads) == 3 * 4
    assert len(found.sights) == 4


def test_algorithm_1s_temperatures_are_those_of_calibrate(whole: Path) -> None:
    text = shipped_prose()[:4000]
    found = read_analysis(whole).temperatures[-1]
    for statistic, tau in (("pmax", found.pmax), ("entropy", found.entropy)):
        own = lw.calibrate(
            make("t5"), transformers.ByT5Tokenizer(), 64, statistic=statistic, text=text, show_progress=False
        ).temperatures[0]
        assert tau == pytest.approx(own.tau)


def test_a_killed_run_goes_on_and_ends_as_an_undisturbed_one(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "killed"
    measured: list[int] = []
    real, solve = MODULE.at_length, MODULE.calibrate

    def counting(model: Any, anatomy: Any, ids: Any) -> Any:
        measured.append(ids.shape[1])
        return real(model, anatomy, ids)

    def dying(*arguments: Any, **options: Any) -> Any:
        if arguments[2] == 64 and options["statistic"] == "entropy":
            raise KeyboardInterrupt
        return solve(*arguments, **options)

    monkeypatch.setattr(MODULE, "at_length", counting)
    monkeypatch.setattr(MODULE, "calibrate", dying)
    with pytest.raises(KeyboardInterrupt):
        analyse(out, name="tiny")
    # The first is only to see whether attention can be read
    assert measured == [16, TRAIN_LENGTH, *LENGTHS]
    assert [one.length for one in read_analysis(out).lengths] == [TRAIN_LENGTH, 48]
    monkeypatch.setattr(MODULE, "calibrate", solve)
    analyse(out, name="tiny")
    assert measured == [16, TRAIN_LENGTH, *LENGTHS, 16]
    assert {name: (out / name).read_bytes() for name in names(out)} == {
        name: (whole / name).read_bytes() for name in names(whole)
    }


@quickly
def test_more_lengths_add_to_what_is_there(whole: Path, tmp_path: Path) -> None:
    analyse(tmp_path / "a", lengths=[48], name="tiny")
    assert analyse(tmp_path / "a", lengths=[64], name="tiny") == read_analysis(whole)


@quickly
def test_without_matplotlib_svg_is_written_and_png_is_asked_for(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"PNG figures need the package matplotlib: pip install 'lengthwise\[experiments\]'"):
        analyse(tmp_path / "a", lengths=[48])
    assert not [name for name in names(tmp_path / "a") if name.endswith(".png")]
    assert (tmp_path / "a" / "figures" / "bias.svg").is_file()


@quickly
def test_a_rotary_model_has_no_learned_bias(tmp_path: Path) -> None:
    found = analyse(tmp_path / "a", make("llama"), [48])
    assert found.sights == ()
    assert "This model has no learned bias" in (tmp_path / "a" / "analysis.md").read_text()
    assert not [name for name in names(tmp_path / "a") if "bias" in name]
    assert found.lengths[-1].keys == 48


@quickly
def test_where_no_temperature_serves_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: Any, **__: Any) -> Any:
        raise lw.BadInput("no temperature between 0.1 and 2")

    monkeypatch.setattr(MODULE, "calibrate", refusing)
    found = analyse(tmp_path / "a", lengths=48)
    assert found.temperatures[-1].pmax is None
    assert "no temperature between 0.1 and 2" in (tmp_path / "a" / "analysis.md").read_text()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no number": ({"lengths": "48"}, "lengths must be a whole number or a list, each a whole number, not '48'"),
    "no lengths": ({"lengths": []}, "at least one length"),
    "a length of one": ({"lengths": [1, 64]}, "at least 2 tokens, not 1"),
    "nothing beyond the training length": ({"lengths": [16, 32]}, "beyond the training length 32"),
    "no sequences": ({"sequences": 0}, "sequences must be at least 1, not 0"),
    "a short text": ({"text": "Dear reader"}, "the text has 11 tokens, fewer than the length 32"),
    "a training length of one": ({"train_length": 1}, "train_length must be above 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_before_anything_is_written(case: str, tmp_path: Path) -> None:
    options, message = REFUSED[case]
    with pytest.raises(lw.BadInput, match=message):
        analyse(tmp_path / "a", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_length_past_a_table_of_positions_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "at_length", None)
    with pytest.raises(lw.BadInput, match="has a table of 512 absolute positions and was given 520 tokens"):
        analyse(tmp_path / "a", make("bert"), [24, 520], train_length=16)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("family", ["falcon", "longt5"])
def test_a_model_whose_attention_cannot_be_read_is_refused_before_anything_is_written(family: str, tmp_path: Path) -> None:
    with pytest.raises(lw.BadInput, match="no method can reach"):
        analyse(tmp_path / "a", make(family), [64], train_length=32)
    assert list(tmp_path.iterdir()) == []


def test_another_model_and_other_settings_are_refused(whole: Path) -> None:
    with pytest.raises(lw.BadInput, match="was begun with another model: its weights"):
        analyse(whole, make("t5", seed=1))
    with pytest.raises(lw.BadInput, match="was begun with another seed: 0 then, 3 now"):
        analyse(whole, seed=3)
    with pytest.raises(lw.BadInput, match="was begun with another text_digest"):
        analyse(whole, text=shipped_prose()[1000:6000])


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear reader")
    with pytest.raises(lw.BadInput, match=r"holds letter\.txt; give another --out"):
        analyse(tmp_path)
    with pytest.raises(lw.BadInput, match=r"cannot use .* as an analysis"):
        analyse(tmp_path / "letter.txt" / "a")
    assert names(tmp_path) == {"letter.txt"}
