"""How the numbers were obtained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lengthwise.report.provenance import commands, describe, facts, named_in_python
from lengthwise.report.read import read_run
from lengthwise.report.section import Section
from tests.report.conftest import alignment, config, record, records

MakeRun = Callable[..., Path]


def test_the_facts_name_model_settings_samples_and_versions(full_run: Path):
    found = dict(facts(Section((read_run(full_run),))))
    assert found["model"] == "embedded"
    assert "weights 1e2cb6c508c16d15" in found["fingerprint"]
    assert (found["train length"], found["seed"], found["dtype"], found["samples a cell"]) == ("512", "0", "bfloat16", "24")
    assert found["time spent on answers"] == "7 min"
    assert found["made with"] == "lengthwise 0.1.0, transformers 5.22.2, torch 2.13.0, device cpu"
    assert found["read from"] == str(full_run)


def test_methods_are_described(full_run: Path):
    section = Section((read_run(full_run),))
    assert describe("none", section) == "the model as it is"
    assert "last 512 tokens" in describe("truncate", section)
    assert "keep P_max as at training length, one a layer, at 2,048, 4,096 and 15,000 tokens of prose" in describe(
        "@out/pmax-layer.json", section
    )


def test_a_hedge_is_described_by_both_its_readings(make_run: MakeRun):
    run = make_run(
        {**config(["hedge+log"]), "reads": {"hedge+log": "both"}}, records(["hedge+log"], ["passkey"], [1024], samples=1)
    )
    assert describe("hedge+log", Section((read_run(run),))) == (
        "two readings mixed by Bayes' rule, the last 512 tokens as they are and the whole with a rule that needs no calibration"
    )


def test_the_commands_make_the_cells_again(make_run: MakeRun):
    lines = records(["none", "log"], ["passkey", "line"], [512, 1024], samples=3)
    lines += [record("none", "line", 5210, k, data="my file.jsonl") for k in range(2)]
    run = make_run(config(["none", "log"]), lines)
    assert commands(Section((read_run(run),))) == [
        "lengthwise evaluate embedded --method none --method log --task passkey --task line "
        f"--length 512 --length 1024 --samples 3 --seed 0 --dtype bfloat16 --train-length 512 --batch-tokens 1024 --out {run}",
        f"lengthwise evaluate embedded --method none --task line --data 'my file.jsonl' --samples 2 "
        f"--seed 0 --dtype bfloat16 --train-length 512 --batch-tokens 1024 --out {run}",
    ]


def test_an_alignment_named_in_python_becomes_a_file_in_the_command(make_run: MakeRun):
    document = {**config(), "methods": {"none": None, "mine": alignment("model")}}
    section = Section((read_run(make_run(document, records(["none", "mine"], ["line"], [512], samples=1))),))
    assert named_in_python(section) == ["mine"]
    assert "--method none --method @mine.json --task" in commands(section)[0]


def test_official_files_are_told_with_their_digests(make_run: MakeRun):
    document = {**config(["none"]), "data": {"200.jsonl": "abc123"}}
    section = Section((read_run(make_run(document, [record("none", "line", 5210, 0, data="200.jsonl")])),))
    assert dict(facts(section))["file 200.jsonl"] == "abc123"


def test_samples_of_other_material_are_told(make_run: MakeRun):
    document = {**config(["none"]), "tasks": {"line": "names of held-out words", "passkey": None}}
    section = Section((read_run(make_run(document, [record("none", "line", 512, 0)])),))
    told = dict(facts(section))
    assert told["samples of line"] == "names of held-out words, given in Python"
    assert "samples of passkey" not in told
