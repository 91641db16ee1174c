"""`lengthwise calibrate` and `lengthwise bake`: what they print, write and refuse."""

from __future__ import annotations

import importlib
import json
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import lengthwise as lw
from lengthwise.cli.calibration import _print_alignment
from lengthwise.methods.recipe import Recipe
from lengthwise.methods.temperature.aligned import Calibrated
from tests.cli.conftest import LENGTH, SCRIPT, listing, save
from tests.conftest import TRAIN_LENGTH, Said, logits, make, tokens
from tests.helpers.answering import answering, saved


def test_calibrate_writes_the_alignment_file_of_the_contract(
    models: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    out = tmp_path / "a new" / "alignment.json"
    said = lengthwise("calibrate", models / "t5", "--length", 96, "--length", 64, "--sequences", 2, "--seed", 4, "--out", out)
    assert said.status == 0
    document = json.loads(out.read_text())
    keys = ["format", "model", "statistic", "scope", "train_length", "target", "temperatures", "provenance", "digest"]
    assert sorted(document) == sorted(keys)
    assert document["format"] == "lengthwise.alignment/1"
    assert (document["statistic"], document["scope"], document["train_length"]) == ("pmax", "model", TRAIN_LENGTH)
    assert [entry["length"] for entry in document["temperatures"]] == [64, 96]
    for entry in document["temperatures"]:
        assert {"length", "tau", "statistic", "forwards"} <= entry.keys()
        assert 0 < entry["tau"] < 1
        assert entry["forwards"] in (2, 3, 4)
    assert (document["provenance"]["sequences"], document["provenance"]["seed"]) == (2, 4)
    assert listing(tmp_path) == ["a new", "a new/alignment.json"]
    # What people read: a line a length, and where the file is
    assert [line.split()[0] for line in said.out.splitlines()[2:]] == ["64", "96"]
    assert said.err[-1] == f"lengthwise: written: {out}; use it as --method '@{out}'"


def test_calibrate_prints_one_json_document_and_nothing_else(
    models: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    out = tmp_path / "alignment.json"
    said = lengthwise("calibrate", models / "t5", "--length", LENGTH, "--out", out, "--json")
    assert said.status == 0
    document = json.loads(said.out)
    assert document == json.loads(out.read_text())
    # The library finds the same
    assert document["temperatures"] == json.loads((models / "model.json").read_text())["temperatures"]


def test_a_rotary_model_is_told_that_a_temperature_alone_hardly_helps(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    save(make("llama"), tmp_path / "llama")
    calibrate = ("calibrate", tmp_path / "llama", "--length", LENGTH, "--out", tmp_path / "alignment.json")
    told = [
        any("a temperature alone" in line for line in lengthwise(*calibrate, *more).err)
        for more in ((), ("--method", "rerope"))
    ]
    assert told == [True, False]
    # Before the forwards, which may take hours
    assert "a temperature alone" in lengthwise(*calibrate).err[0]


@pytest.mark.filterwarnings("default")
def test_calibrate_takes_its_options(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(chr(97 + (7 * i * i) % 26) for i in range(200)))
    common = ("--length", LENGTH, "--text", text, "--statistic", "entropy", "--train-length", 24, "--dtype", "float32")
    said = lengthwise("calibrate", models / "t5", *common, "--search", "grid", "--out", tmp_path / "grid.json")
    assert said.status == 0
    # It ends off its target, and says so
    (note,) = (line for line in said.err if "note:" in line)
    assert note.startswith(f"lengthwise: note: length {LENGTH}: the mean entropy is ")
    assert "; the grid ends there, so use --search solve" in note
    document = json.loads((tmp_path / "grid.json").read_text())
    assert (document["statistic"], document["train_length"]) == ("entropy", 24)
    assert document["temperatures"][0]["forwards"] == 11
    assert document["provenance"]["text"] == "text.txt"
    assert lengthwise("calibrate", models / "t5", *common, "--scope", "head", "--out", tmp_path / "head.json").status == 0
    tau = json.loads((tmp_path / "head.json").read_text())["temperatures"][0]["tau"]
    assert [len(row) for row in tau] == [4, 4, 4]


def test_columns_of_a_table_of_many_values_stay_apart(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    said = lengthwise("calibrate", models / "t5", "--length", LENGTH, "--scope", "head", "--out", tmp_path / "a.json")
    header, row = said.out.splitlines()[1:]
    for column in ("pmax", "long forwards"):
        assert row[header.index(column) - 1] == " " != row[header.index(column)]


def test_columns_are_as_wide_as_what_they_hold(capsys: pytest.CaptureFixture[str]) -> None:
    tau = (Calibrated(2048, 0.8008, 0.1787, 3, 0.1788), Calibrated(4096, 0.7264, 0.1788, 3, 0.1788))
    _print_alignment(lw.Alignment("pmax", "model", 512, 0.1788, tau))
    assert capsys.readouterr().out.splitlines() == [
        "pmax at training length 512: 0.1788",
        "  length  tau     pmax    long forwards",
        "   2,048  0.8008  0.1787  3",
        "   4,096  0.7264  0.1788  3",
    ]


def test_a_baked_checkpoint_is_a_stock_one(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    out = tmp_path / "baked"
    said = lengthwise("bake", models / "t5", models / "model.json", "--length", LENGTH, "--out", out)
    assert said.status == 0
    assert said.err == []
    assert said.out.startswith(f"{out}: a stock T5ForConditionalGeneration with tau 0.")
    assert listing(tmp_path)[0] == "baked"
    assert {path.split("/")[0] for path in listing(tmp_path)} == {"baked"}
    stock = transformers.T5ForConditionalGeneration.from_pretrained(out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert tokenizer("a word").input_ids == transformers.ByT5Tokenizer()("a word").input_ids
    model, ids = make("t5"), tokens(LENGTH)
    with lw.extend(model, lw.Alignment.load(models / "model.json")):
        expected = logits(model, ids)
    torch.testing.assert_close(logits(stock, ids), expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(logits(model, ids), expected, atol=1e-3)


def test_a_recipe_is_baked_where_it_is_one_temperature(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    alignment, out = lw.Alignment.load(models / "model.json"), tmp_path / "baked"
    for name, parts in {"one": (alignment,), "two": ("log", alignment), "none": ()}.items():
        Recipe(name, parts, LENGTH, 32, ("said",), {}, {"model": alignment.model}).save(tmp_path / f"{name}.json")
    assert lengthwise("bake", models / "t5", tmp_path / "one.json", "--length", LENGTH, "--out", out).status == 0
    for name, told in {"two": "installs 2 methods", "none": "installs no methods"}.items():
        said = lengthwise("bake", models / "t5", tmp_path / f"{name}.json", "--length", LENGTH, "--out", tmp_path / "other")
        assert said.status == 2
        assert f"{told}; weights can carry one temperature" in said.err[-1]


def test_another_models_recipe_is_baked_by_force(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    made_for = lw.Alignment.load(models / "model.json").model
    Recipe("log", ("log",), LENGTH, 32, ("said",), {}, {"model": made_for}).save(tmp_path / "log.json")
    arguments = ("bake", models / "other", tmp_path / "log.json", "--length", LENGTH, "--out", tmp_path / "baked")
    said = lengthwise(*arguments)
    assert said.status == 2
    assert "this recipe was made for another model" in said.err[-1]
    assert not (tmp_path / "baked").exists()
    assert lengthwise(*arguments, "--force").status == 0


def test_bake_says_in_json_what_it_did(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    (tmp_path / "baked").mkdir()
    arguments = (models / "t5", models / "model.json", "--length", LENGTH, "--out", tmp_path / "baked", "--json")
    said = lengthwise("bake", *arguments)
    document = json.loads(said.out)
    expected = json.loads((models / "model.json").read_text())["temperatures"][0]["tau"]
    assert document["tau"] == pytest.approx(expected, rel=1e-5)
    assert (document["length"], document["out"]) == (LENGTH, str(tmp_path / "baked"))
    assert (tmp_path / "baked" / "model.safetensors").exists()


def test_what_reads_pictures_comes_along(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    folder = shutil.copytree(models / "t5", tmp_path / "t5")
    (folder / "preprocessor_config.json").write_text("{}")
    assert lengthwise("bake", folder, "log", "--length", LENGTH, "--out", tmp_path / "baked").status == 0
    assert (tmp_path / "baked" / "preprocessor_config.json").read_text() == "{}"


def test_another_models_alignment_is_baked_by_force(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    arguments = ("bake", models / "other", models / "model.json", "--length", LENGTH, "--out", tmp_path / "baked")
    assert lengthwise(*arguments).status == 2
    assert lengthwise(*arguments, "--force").status == 0


# Arguments, with {m} for the folder of models and {t} for an empty one, and what the line must say
REFUSALS: dict[str, tuple[str, str]] = {
    "NaN in the weights": (
        "calibrate {m}/nan --length 64 --out {t}/a.json",
        "has NaN or infinity in encoder.block.1.layer.0.SelfAttention.k.weight; give a whole one",
    ),
    "a family that cannot be reached": (
        "calibrate {m}/falcon --length 2100 --out {t}/a.json",
        "FalconModel computes attention",
    ),
    "the training length": ("calibrate {m}/t5 --length 32 --out {t}/a.json", "length 32 is not above the training length 32"),
    "one length too short": ("calibrate {m}/t5 --length 64 --length 5 --out {t}/a.json", "length 5 is not above"),
    "a short text": ("calibrate {m}/t5 --length 64 --text {m}/letters/dear.txt --out {t}/a.json", "the text has 11 tokens"),
    "no such text": ("calibrate {m}/t5 --length 64 --text {m}/none.txt --out {t}/a.json", "cannot read the text file"),
    "a pickle": ("calibrate {m}/pickle --length 64 --out {t}/a.json", "are a pickle (pytorch_model.bin)"),
    "a pickle to bake": ("bake {m}/pickle {m}/model.json --length 64 --out {t}/b", "are a pickle (pytorch_model.bin)"),
    "not a model": ("calibrate {m}/letters --length 64 --out {t}/a.json", "it has no config.json"),
    "not a directory": ("calibrate {m}/nowhere --length 64 --out {t}/a.json", "no directory"),
    "nearly the model that ships": (
        "calibrate embeded --length 1024 --out {t}/a.json",
        "no model 'embeded'; did you mean 'embedded'?",
    ),
    "an unknown statistic": ("calibrate {m}/t5 --length 64 --statistic x --out {t}/a.json", "statistic must be one of"),
    "an unknown method": ("calibrate {m}/t5 --length 64 --method x --out {t}/a.json", "no method 'x'"),
    "an unknown dtype": ("calibrate {m}/t5 --length 64 --dtype int4 --out {t}/a.json", "dtype must be one of"),
    "a text and a task": (
        "calibrate {m}/t5 --length 64 --task passkey --text {m}/letters/dear.txt --out {t}/a.json",
        "not several",
    ),
    "a length that is no number": ("calibrate {m}/t5 --length long --out {t}/a.json", "'--length'"),
    "no model": ("calibrate --length 64 --out {t}/a.json", "Missing argument 'MODEL'"),
    "no length": ("calibrate {m}/t5 --out {t}/a.json", "Missing option '--length'. (lengthwise calibrate --help shows what"),
    "no place to write to": ("calibrate {m}/t5 --length 64", "Missing option '--out'"),
    "a file as the folder to write to": ("calibrate {m}/t5 --length 64 --out {m}/model.json/a.json", "cannot write"),
    "a model's config as the file to write": (
        "calibrate {m}/t5 --length 64 --out {m}/t5/config.json",
        "config.json is there and holds no alignment or positions",
    ),
    "a folder as the file to write": ("calibrate {m}/t5 --length 64 --out {t}", "cannot write"),
    "a file as the folder to bake into": ("bake {m}/t5 {m}/model.json --length 64 --out {m}/model.json/b", "cannot write"),
    "a folder that lets nobody write": (
        "calibrate {m}/t5 --length 64 --out /proc/x.json",
        "cannot write /proc/x.json: No such",
    ),
    "such a folder to bake into": ("bake {m}/t5 {m}/model.json --length 64 --out /proc/new/b", "cannot write /proc/new/b"),
    "a name too long to write": ("calibrate {m}/t5 --length 64 --out {t}/" + 300 * "a", "File name too long"),
    "a folder that is not empty": ("bake {m}/t5 {m}/model.json --length 64 --out {m}/letters", "exists already"),
    "an alignment of another model": ("bake {m}/other {m}/model.json --length 64 --out {t}/b", "made for"),
    "layers on a shared bias": ("bake {m}/t5 {m}/layer.json --length 64 --out {t}/b", "share one bias table"),
    "nothing to bake": ("bake {m}/t5 {m}/model.json --length 32 --out {t}/b", "at length 32 the temperature is 1"),
    "no alignment": ("bake {m}/t5 {m}/none.json --length 64 --out {t}/b", "no alignment file"),
    "a text for an alignment": ("bake {m}/t5 {m}/letters/dear.txt --length 64 --out {t}/b", "is not an alignment file"),
    "another kind of document": ("bake {m}/t5 {m}/t5/config.json --length 64 --out {t}/b", "its format is None"),
}


def test_bake_takes_a_temperature_method_too(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    said = lengthwise("bake", models / "t5", "log", "--length", LENGTH, "--out", tmp_path / "baked", "--json")
    assert said.status == 0, said.err
    assert json.loads(said.out)["tau"] == pytest.approx(math.log(32) / math.log(LENGTH), rel=1e-5)


@pytest.mark.parametrize("document", ["recipe", "run", "training", "analysis"])
def test_calibrate_replaces_no_other_document_of_ours(
    document: str, models: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    out = tmp_path / "recipe.json"
    # What it installs is told in it, alignments among that
    written = json.dumps({"format": f"lengthwise.{document}/1", "installs": [json.loads((models / "model.json").read_text())]})
    out.write_text(written)
    said = lengthwise("calibrate", models / "t5", "--length", LENGTH, "--out", out)
    assert (said.status, out.read_text()) == (2, written)
    assert said.err[-1].startswith(f"lengthwise: {out} is there and holds no alignment or positions")


def test_calibrate_adds_to_standard_output_whatever_that_holds(models: Path, tmp_path: Path) -> None:
    words = ["calibrate", str(models / "t5"), "--length", str(LENGTH), "--out", "/dev/stdout"]
    with (tmp_path / "log").open("a") as log:
        log.write("before\n")
        log.flush()
        subprocess.run([SCRIPT, *words], stdout=log, check=True)
    assert (tmp_path / "log").read_text().startswith('before\n{\n  "format": "lengthwise.alignment/1"')


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_gets_status_2_and_one_line_and_writes_nothing(
    case: str, tmp_path: Path, refused: Callable[..., None]
) -> None:
    refused(*REFUSALS[case], tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"temperatures": None},
        {"temperatures": []},
        {"temperatures": [{"length": 64}]},
        {"temperatures": [{"length": 64, "tau": -0.5, "statistic": 0.1, "forwards": 3}]},
        {"temperatures": [{"length": 64, "tau": "hot", "statistic": 0.1, "forwards": 3}]},
        {"temperatures": [{"length": 64, "tau": [0.5, 0.6], "statistic": 0.1, "forwards": 3}]},
        {"temperatures": [{"length": 8, "tau": 0.5, "statistic": 0.1, "forwards": 3}]},
        {"train_length": "short"},
        {"scope": "planet"},
    ],
)
def test_a_damaged_alignment_is_refused(
    change: dict[str, Any], models: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps({**json.loads((models / "model.json").read_text()), **change}))
    said = lengthwise("bake", models / "t5", damaged, "--length", LENGTH, "--out", tmp_path / "baked")
    assert (said.status, said.out, len(said.err)) == (2, "", 1)
    assert said.err[0].startswith(f"lengthwise: {damaged} is damaged: ")
    assert listing(tmp_path) == ["damaged.json"]


def test_half_an_alignment_file_is_refused(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    text = (models / "model.json").read_text()
    (tmp_path / "half.json").write_text(text[: len(text) // 2])
    said = lengthwise("bake", models / "t5", tmp_path / "half.json", "--length", LENGTH, "--out", tmp_path / "baked")
    assert (said.status, len(said.err)) == (2, 1)
    assert "is not an alignment file" in said.err[0]
    assert listing(tmp_path) == ["half.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to_is_refused_before_any_work(
    models: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    tmp_path.chmod(0o500)
    said = lengthwise("calibrate", models / "t5", "--length", LENGTH, "--out", tmp_path / "a.json")
    assert (said.status, len(said.err)) == (2, 1)
    said = lengthwise("bake", models / "t5", models / "model.json", "--length", LENGTH, "--out", tmp_path / "baked")
    assert (said.status, len(said.err)) == (2, 1)


def test_what_a_full_disk_does_not_take_is_not_lost(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    out = tmp_path / "a.json"
    for flags in ((), ("--json",)):
        said = lengthwise("calibrate", models / "t5", "--length", LENGTH, "--out", out, *flags)
        assert said.status == 2
        why = f"cannot write {out}: No space left on device; give another place"
        assert said.err[-1] == f"lengthwise: {why}; the file's content was printed instead, keep it"
        (tmp_path / "kept.json").write_text(said.out)
        kept = lw.Alignment.load(tmp_path / "kept.json")
        assert kept.temperatures == lw.Alignment.load(models / "model.json").temperatures
    assert listing(tmp_path) == ["kept.json"]
    monkeypatch.setattr(transformers.ByT5Tokenizer, "save_pretrained", full)
    said = lengthwise("bake", models / "t5", models / "model.json", "--length", LENGTH, "--out", tmp_path / "baked")
    assert said == Said(2, "", [f"lengthwise: cannot write {tmp_path}/baked: No space left on device; give another place"])
    assert listing(tmp_path) == ["kept.json"]


def interrupt(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["in a forward", "while writing"])
def test_an_interrupted_calibration_leaves_the_old_file_and_no_half_of_a_new_one(
    where: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    out = tmp_path / "alignment.json"
    out.write_text(old := '{"format": "lengthwise.alignment/1"}')
    if where == "in a forward":
        monkeypatch.setattr(importlib.import_module("lengthwise.calibration.at_length"), "run_stack", interrupt)
    else:
        monkeypatch.setattr(Path, "replace", interrupt)
    said = lengthwise("calibrate", models / "t5", "--length", LENGTH, "--out", out)
    assert (said.status, said.out) == (130, "")
    assert said.err[-1] == "lengthwise: interrupted; nothing half-written was left behind, give the same command again"
    assert listing(tmp_path) == ["alignment.json"]
    assert out.read_text() == old


def test_an_interrupted_bake_leaves_nothing(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    """Interrupted between the weights and the tokenizer."""
    monkeypatch.setattr(transformers.ByT5Tokenizer, "save_pretrained", interrupt)
    said = lengthwise("bake", models / "t5", models / "model.json", "--length", LENGTH, "--out", tmp_path / "baked")
    assert said.status == 130
    assert listing(tmp_path) == []


@pytest.mark.filterwarnings("ignore:length .*no temperature makes")
def test_answers_are_told_on_cases_that_were_not_fitted(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    out = tmp_path / "a.json"
    command = ("calibrate", models / "t5", "--length", 640, "--train-length", 512, "--statistic", "answers")
    said = lengthwise(*command, "--task", "passkey", "--sequences", 2, "--out", out)
    assert said.status == 0
    assert "nats on cases that were not fitted" in said.out
    assert [line.split()[:2] for line in said.out.splitlines()[-2:]] == [["640", "passkey"], ["640", "prose"]]
    assert lw.Alignment.load(out).statistic == "answers"


def test_calibrate_searches_the_numbers_of_a_position_method(
    tmp_path: Path, lengthwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lengthwise.calibration.position_search.MOST_CANDIDATES", 4)
    folder, out = saved(answering("llama"), tmp_path / "model"), tmp_path / "of it" / "scales.json"
    common = ("--length", 320, "--task", "passkey", "--sequences", 2)
    said = lengthwise("calibrate", folder, *common, "--search", "dpe", "--out", out)
    assert said.status == 0
    assert said.out.splitlines()[0].startswith("dpe: ")
    assert said.out.splitlines()[-1] == f"use it as --method 'dpe:scales={out}'"
    assert json.loads(out.read_text())["format"] == "lengthwise.positions/1"
    said = lengthwise("calibrate", folder, *common, "--search", "dpe", "--scope", "head", "--out", out)
    assert (said.status, said.err[-1].split("; ")[-1]) == (2, "give one --length, and neither --statistic nor --scope")
    said = lengthwise("calibrate", folder, *common, "--minutes", 3, "--out", out)
    assert (said.status, said.err) == (
        2,
        ["lengthwise: --minutes is for --statistic answers or --search dpe or longrope; leave it out"],
    )


def test_export_prints_and_writes_what_it_did(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    model, out = saved(make("llama"), tmp_path / "llama"), tmp_path / "out"
    said = lengthwise("export", model, "yarn:factor=2+constant:tau=0.8", "--to", "transformers", "--out", out)
    assert said.status == 0, said.err
    first, config, weights = said.out.splitlines()
    assert first == f"{out}: for transformers, inputs of about 64 tokens"
    assert '"rope_type": "yarn"' in config
    assert weights == "- it carries the temperature tau 0.8"
    card = (out / "README.md").read_text()
    assert f"lengthwise export {model} yarn:factor=2+constant:tau=0.8 --to transformers --out {out}" in card
    assert config in card
    assert json.loads((out / "config.json").read_text())["max_position_embeddings"] == 64


EXPORT_REFUSALS = {
    "a folder that is not empty": ("{m}/t5 log --length 64 --to transformers --out {m}/letters", "exists already"),
    "a file": ("{m}/t5 log --length 64 --to transformers --out {t}/a.gguf", "give a directory, in which model.gguf"),
    "no such engine": ("{m}/t5 log --length 64 --to vllm --out {t}/b", "--to must be one of transformers"),
    "no length": ("{m}/t5 log --to transformers --out {t}/b --verify", "give it (--length)"),
    "nothing to do": ("{m}/t5 log --length 32 --to transformers --out {t}/b", "at length 32 this method changes nothing"),
    "no such method": ("{m}/t5 lag --length 64 --to transformers --out {t}/b", "no method 'lag'"),
}


@pytest.mark.parametrize("case", EXPORT_REFUSALS)
def test_export_refuses_in_one_line(case: str, models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    line, message = EXPORT_REFUSALS[case]
    said = lengthwise("export", *line.format(m=models, t=tmp_path).split())
    assert (said.status, said.out) == (2, "")
    assert message in said.err[-1]
    assert sum(line.startswith("lengthwise: ") for line in said.err) == 1
    assert not list(tmp_path.iterdir())
