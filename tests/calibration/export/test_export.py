"""`lw.export`: what it writes, compares and refuses."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as tf
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.calibration.export import checkpoint, onnx_graphs
from lengthwise.calibration.export.plan import make_plan
from lengthwise.calibration.export.verify import Expected, compare, ends_of, greedy_settings
from lengthwise.methods.recipe import Recipe
from lengthwise.methods.temperature.aligned import Calibrated
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from tests.conftest import TRAIN_LENGTH, logits, make, tokens
from tests.helpers.forking import finished, forked

LONG = 4 * TRAIN_LENGTH


def alignment(model: Any, tau: float = 0.6) -> lw.Alignment:
    table = (Calibrated(LONG, tau, 0.5, 3),)
    return lw.Alignment("pmax", "model", TRAIN_LENGTH, 0.5, table, model_fingerprint(anatomy_of(model)))


@pytest.mark.sweep
def test_an_exported_t5_is_checked_in_a_process_without_lengthwise(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    model = make("t5")
    out = tmp_path / "new" / "out"
    done = lw.export(model, alignment(model), out=out, tokenizer=tokenizer, verify=True, command="lengthwise export ...")
    assert (done.length, done.tau) == (LONG, [0.6] * 3)
    assert done.compared[0] == f"3 of 3 prompts of {LONG} tokens got the same answer of up to 8 tokens"
    assert float(done.compared[1].split()[7]) < 2e-5
    card = (out / "README.md").read_text()
    for told in (*done.says, *done.compared, "lengthwise export ...", "tau 0.6", f"trained on {TRAIN_LENGTH} tokens"):
        assert told in card
    stock = tf.T5ForConditionalGeneration.from_pretrained(out).eval()
    with lw.extend(model, alignment(model)):
        torch.testing.assert_close(logits(stock, tokens(LONG)), logits(model, tokens(LONG)), atol=1e-4, rtol=1e-4)
    assert tf.AutoTokenizer.from_pretrained(out)("a").input_ids == tokenizer("a").input_ids
    assert not hasattr(model.config, "lengthwise")


def test_a_recipe_tells_its_length_and_its_evidence(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    model = make("llama")
    parts = ("yarn:factor=4,temperature=false", alignment(model, 0.8))
    said = ("yarn answers 9 of 10 at 128 tokens",)
    recipe = Recipe("yarn+alignment", parts, LONG, TRAIN_LENGTH, said, {}, {"model": model_fingerprint(anatomy_of(model))})
    recipe.save(tmp_path / "recipe.json")
    for method in (recipe, f"@{tmp_path}/recipe.json"):
        done = lw.export(model, method, out=tmp_path / "out", tokenizer=tokenizer, overwrite=True)
        assert done.length == LONG
        assert done.rope_parameters is not None
        assert "in `extend` each row has that of the keys it sees" in done.says[-1]
        assert said[0] in (tmp_path / "out" / "README.md").read_text()


REFUSED = {
    "rerope": "ReRoPE gives keys of one row different distances, which no stock engine computes; .* yarn:factor=4",
    "streaming_llm": "distances, which no stock engine computes; the nearest that can is yarn:factor=4",
    "window": "Window hides keys",
    "alibi": "Alibi adds a bias",
    "adaptive": "follows the entropy of every row",
    "yarn:dynamic=true": "frequencies|follows",
}


def test_a_plain_model_is_said_to_be_unchanged(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    told = lw.export(make("llama"), "none", out=tmp_path / "out", length=LONG, tokenizer=tokenizer)
    assert told.says == ("nothing was changed",)
    assert "- nothing was changed\n" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("spec", REFUSED)
def test_what_no_engine_computes_is_refused_with_the_nearest_that_one_does(
    spec: str, tmp_path: Path, tokenizer: ByT5Tokenizer
) -> None:
    length = None if "dynamic" in spec else LONG
    with pytest.raises(lw.BadInput, match=REFUSED[spec]) as caught:
        lw.export(make("llama"), spec, length=length, out=tmp_path / "out", tokenizer=tokenizer)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_t5_is_told_of_temperatures(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    with pytest.raises(lw.BadInput, match="what can is a temperature"):
        lw.export(make("t5"), "window", length=LONG, out=tmp_path / "out", tokenizer=tokenizer)


def test_an_existing_folder_is_kept_unless_told(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    out, model = tmp_path / "out", make("llama")
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(lw.BadInput, match=r"exists already; give a new directory, or --overwrite$"):
        lw.export(model, "yarn:factor=4", out=out, tokenizer=tokenizer)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]
    lw.export(model, "yarn:factor=4", out=out, tokenizer=tokenizer, overwrite=True)
    assert not (out / "mine.txt").exists()
    assert json.loads((out / "config.json").read_text())["rope_parameters"]["rope_type"] == "yarn"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_reads_pictures_comes_along(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    model, folder = make("llama"), tmp_path / "model"
    folder.mkdir()
    (folder / "preprocessor_config.json").write_text("{}")
    model.config._name_or_path = str(folder)
    lw.export(model, "yarn:factor=4", out=tmp_path / "out", tokenizer=tokenizer)
    assert (tmp_path / "out" / "preprocessor_config.json").read_text() == "{}"


def test_a_model_of_no_folder_takes_nothing_from_the_one_that_is_worked_in(
    tmp_path: Path, tokenizer: ByT5Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text("{}")
    lw.export(make("llama"), "yarn:factor=4", out=tmp_path / "out", tokenizer=tokenizer)
    assert not (tmp_path / "out" / "preprocessor_config.json").exists()


def test_how_pictures_share_the_pairs_is_kept(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    model = make("llama")
    model.config.rope_parameters["mrope_section"] = [1, 1, 2]
    lw.export(model, "yarn:factor=4", out=tmp_path / "out", tokenizer=tokenizer)
    written = json.loads((tmp_path / "out" / "config.json").read_text())["rope_parameters"]
    assert (written["rope_type"], written["mrope_section"]) == ("yarn", [1, 1, 2])


def test_an_export_that_ends_half_way_leaves_nothing(
    tmp_path: Path, tokenizer: ByT5Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tf.PreTrainedTokenizerBase, "save_pretrained", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lw.export(make("llama"), "yarn:factor=4", out=tmp_path / "out", tokenizer=tokenizer)
    assert not list(tmp_path.iterdir())


def test_an_export_that_is_killed_leaves_no_folder_and_the_old_one_as_it_was(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    old = tmp_path / "old"
    old.mkdir()
    (old / "mine.txt").write_text("mine")

    def killed_half_way(out: Path) -> bool:
        def work() -> None:
            tf.PreTrainedTokenizerBase.save_pretrained = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            lw.export(make("llama"), "yarn:factor=4", out=out, tokenizer=tokenizer, overwrite=True)

        return not finished(forked(work))

    assert killed_half_way(tmp_path / "new")
    assert killed_half_way(old)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".part-")] == ["old"]
    assert [path.name for path in old.iterdir()] == ["mine.txt"]


def test_a_target_that_there_is_not(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    with pytest.raises(lw.BadInput, match=r"--to must be one of transformers.*did you mean 'transformers'"):
        lw.export(make("llama"), "yarn:factor=4", to="transformer", out=tmp_path, tokenizer=tokenizer)


def test_a_model_that_does_not_know_its_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(lw.BadInput, match="give tokenizer="):
        lw.export(make("llama"), "yarn:factor=4", out=tmp_path / "out")
    with pytest.raises(lw.BadInput, match="tokenizer must be the model's own, as AutoTokenizer loads it, not 'llama'"):
        lw.export(make("llama"), "yarn:factor=4", out=tmp_path / "out", tokenizer="llama")


def test_an_engine_that_differs_is_said_to() -> None:
    wanted = Expected([[1, 2]], {"eos_token_id": [7, 9]}, torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0, -2.0]]), [[3, 4]])
    lines = compare((torch.tensor([[1.1, -1.1]]), [[3, 5]]), wanted)
    assert lines[0].startswith("0 of 1 prompts of 2 tokens got the same")
    assert "relative error 1.0e-01 from lengthwise with what was written" in lines[1]
    assert "4.5e-01 from the method under `extend`" in lines[2]
    # What stands behind the end does not count
    assert compare((None, [[3, 4, 9, 1]]), wanted)[0].startswith("1 of 1 prompts")


def test_an_answer_may_end_with_token_0() -> None:
    model = make("llama")
    model.config.eos_token_id, model.generation_config.eos_token_id = None, 0
    assert greedy_settings(model)["eos_token_id"] == 0
    model.config.eos_token_id, model.generation_config.eos_token_id = 0, None
    assert greedy_settings(model)["eos_token_id"] == 0


def test_an_answer_may_have_no_end_one_or_several() -> None:
    assert [ends_of(greedy) for greedy in ({}, {"eos_token_id": 0}, {"eos_token_id": [1, 2]})] == [[], [0], [1, 2]]


def test_onnx_graphs_are_asked_whatever_ends_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    answering = SimpleNamespace(answer=lambda *given: said.append(given) or (torch.zeros(2), [1]))
    monkeypatch.setattr(onnx_graphs, "Sessions", lambda _: answering)
    for ends in ({}, {"eos_token_id": 1}, {"eos_token_id": [1, 2]}):
        onnx_graphs.ask(Path(), [[3]], {"decoder_start_token_id": 0, "max_new_tokens": 8, **ends})
    assert [given[2] for given in said] == [[], [1], [1, 2]]


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("t5 encoder", "--to {to} writes models that answer, and T5EncoderModel does not"),
        ("gpt_neox", "--to {to} (writes|is for) .*, not gpt_neox; "),
    ],
)
def test_converters_refuse_a_model_before_they_ask_for_a_package(
    to: str, name: str, refusal: str, tmp_path: Path, tokenizer: ByT5Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("ctranslate2", "onnx"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(lw.BadInput, match=refusal.format(to=to)):
        lw.export(make(name), "log", to=to, out=tmp_path / "out", tokenizer=tokenizer, length=LONG)


def test_every_graph_that_is_traced_is_named_before(
    tmp_path: Path, tokenizer: ByT5Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    def trace(*_: Any, **__: Any) -> SimpleNamespace:
        told.append(capsys.readouterr().err)
        return SimpleNamespace(save=lambda path: Path(path).write_bytes(b""))

    monkeypatch.setattr(torch.onnx, "export", trace)
    onnx_graphs.write(make("t5"), tokenizer, make_plan(make("t5"), "log", LONG, None), tmp_path)
    assert told == [f"tracing {path}\n" for path in (onnx_graphs.ENCODER, onnx_graphs.FIRST, onnx_graphs.NEXT)]


def test_what_transformers_cannot_run_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SCRIPT", tmp_path / "none.py")
    with pytest.raises(lw.BadInput, match="plain transformers cannot run the exported model: ") as caught:
        checkpoint.ask(tmp_path, [[1, 2]], {})
    assert "\n" not in str(caught.value)
