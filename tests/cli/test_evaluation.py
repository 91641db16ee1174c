"""`lengthwise evaluate` and `lengthwise reach`: what they print, write and refuse."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

from lengthwise.cli import run
from lengthwise.cli.evaluation import score_table, with_ray_address
from lengthwise.evaluation.sweep import in_process
from lengthwise.methods.temperature.aligned import Alignment, Calibrated
from lengthwise.records import Cell, Record, read_lines
from lengthwise.tasks import TASKS
from tests.conftest import Said
from tests.helpers.answering import answering, saved

LONG = 300


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    saved(answering("t5"), folder / "t5")
    saved(answering("t5", seed=1), folder / "other")
    Alignment("pmax", "model", 256, 0.5, (Calibrated(LONG, 0.3, 0.5, 3),), {"family": "t5"}).save(folder / "a.json")
    Alignment("pmax", "model", 256, 0.5, (Calibrated(LONG, 0.3, 0.5, 3),), {"weights": "abc"}).save(folder / "foreign.json")
    return folder


@pytest.fixture
def all_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that always answers what it should."""
    score = {name: lambda prediction, target: 1.0 for name in TASKS}
    for name, task in TASKS.items():
        changed = type(task)(task.samples, score[name], 2, task.read)
        monkeypatch.setitem(TASKS, name, changed)


@pytest.mark.parametrize(("counts", "words"), [([1], "1 sample"), ([1, 3], "1 or 3 samples"), ([3, 3], "3 samples")])
def test_one_sample_is_told_as_one(counts: list[int], words: str) -> None:
    cells = [Cell("m", "none", "passkey", "", 64 + i, 1.0, 0.2, 1.0, n, 64.0) for i, n in enumerate(counts)]
    assert score_table(cells).endswith(f"\npercent (95 % interval), {words} a cell")


def test_evaluate_prints_one_table_and_says_where_the_records_are(
    models: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    out, spec = tmp_path / "a run", f"@{models / 'a.json'}"
    command = ["evaluate", models / "t5", "--method", "none", "--method", "truncate", "--method", spec, "--task", "passkey"]
    command += ["--task", "line", "--length", 240, "--length", LONG, "--samples", 3, "--out", out]
    said = lengthwise(*command)
    assert said.status == 0
    assert said.err[-1] == f"lengthwise: records: {out}; `lengthwise report '{out}' --out report.html` makes a page"
    lines = said.out.splitlines()
    assert lines[0].split() == ["task", "tokens", "none", "truncate", spec]
    assert [line.split()[:2] for line in lines[1:5]] == [
        ["passkey", "240"],
        ["passkey", "300"],
        ["line", "240"],
        ["line", "300"],
    ]
    assert all(line.split()[2:] == ["0", "(0-56)"] * 3 for line in lines[1:5])
    assert lines[-1] == "percent (95 % interval), 3 samples a cell"
    records = read_lines(out / "records.jsonl", Record)
    assert len(records) == 3 * 2 * 2 * 3
    assert {record.model for record in records} == {str(models / "t5")}
    # The same again asks nothing and says the same
    again = lengthwise(*command)
    assert (again.out, again.err) == (said.out, said.err[-1:])


@pytest.mark.usefixtures("all_right")
def test_evaluate_prints_one_json_document_that_is_the_summary(
    models: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    out = tmp_path / "run"
    said = lengthwise("evaluate", models / "t5", "--task", "passkey", "--length", LONG, "--samples", 2, "--out", out, "--json")
    document = json.loads(said.out)
    assert (document["model"], document["out"]) == (str(models / "t5"), str(out))
    (row,) = csv.DictReader((out / "summary.csv").read_text().splitlines())
    assert [{key: str(value) for key, value in cell.items()} for cell in document["cells"]] == [row]
    assert (row["method"], row["mean"], row["n"]) == ("none", "1.0", "2")


def test_evaluate_takes_its_options(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    sample = TASKS["passkey"].samples(ByT5Tokenizer(), LONG, 1, 0)[0]
    (tmp_path / "cases.jsonl").write_text(json.dumps({"prompt": sample.prompt, "target": sample.target}))
    common = ("evaluate", models / "t5", "--task", "passkey", "--seed", 4, "--train-length", 270, "--batch-tokens", 700)
    more = ("--dtype", "float32", "--device", "cpu", "--method", "truncate", "--out", tmp_path / "run")
    said = lengthwise(*common, *more, "--data", tmp_path / "cases.jsonl")
    assert said.status == 0
    assert said.out.splitlines()[1].split() == ["passkey", "cases.jsonl", str(sample.tokens), "0", "(0-79)"]
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert {"seed": 4, "dtype": "float32", "train_length": 270, "batch_tokens": 700}.items() <= settings.items()
    spec = f"@{models / 'foreign.json'}"
    forced = (*common, "--method", spec, "--length", LONG, "--samples", 1, "--out", tmp_path / "forced")
    assert "made for" in lengthwise(*forced).err[-1]
    assert lengthwise(*forced, "--force").status == 0


T5_PASSKEY = "evaluate {m}/t5 --task passkey --length 300 --out {t}/new --method "
# Arguments, with {m} for the folder of models and {t} for one with a run directory, and what the line must say
REFUSALS: dict[str, tuple[str, str]] = {
    "no length": ("evaluate {m}/t5 --task passkey --out {t}/new", "give lengths in tokens (--length N ...)"),
    "lengths and data": ("evaluate {m}/t5 --task line --length 300 --data x.jsonl --out {t}/new", "not both"),
    "data of two tasks": ("evaluate {m}/t5 --task line --task topic --data x.jsonl --out {t}/new", "one task"),
    "no such data": ("evaluate {m}/t5 --task line --data {m}/x.jsonl --out {t}/new", "cannot read the cases in"),
    "questions and lengths": (
        "evaluate {m}/t5 --length 300 --data {t}/mine.jsonl --out {t}/new",
        "name the task (--task), or leave --length out",
    ),
    "no task": ("evaluate {m}/t5 --length 300 --out {t}/new", "give a task (--task NAME), or questions of your own"),
    "no place to write to": ("evaluate {m}/t5 --task passkey --length 300", "Missing option '--out'"),
    "an unknown task": ("evaluate {m}/t5 --task passky --length 300 --out {t}/new", "did you mean 'passkey'"),
    "an unknown method": ("evaluate {m}/t5 --task passkey --method x --length 300 --out {t}/new", "no method 'x'"),
    "truncate and more": ("evaluate {m}/t5 --task passkey --method truncate+log --length 300 --out {t}/new", "baseline"),
    "a factor below 1": (T5_PASSKEY + "yarn:factor=0.5", "yarn needs factor >= 1, not 0.5"),
    "a window too large": (T5_PASSKEY + "window:size=4096", "a window of 4096 is larger than the training length"),
    "one slot claimed twice": (T5_PASSKEY + "streaming_llm+window", "StreamingLLM and Window both fill the visible slot"),
    "a slot the model lacks": (T5_PASSKEY + "rerope", "ReRoPE changes rotary positions, and T5Stack has none"),
    "a slot the model fills": (T5_PASSKEY + "alibi", "fills the bias slot, and so does the learned bias of this t5"),
    "a similarity never trained": (T5_PASSKEY + "cosscale", "was not trained with it"),
    "a hedge of nothing": (T5_PASSKEY + "hedge+", "'hedge+': no method stands after the +"),
    "no such alignment": ("evaluate {m}/t5 --task passkey --method @x.json --length 300 --out {t}/new", "no alignment file"),
    "no room": ("evaluate {m}/t5 --task passkey --length 20 --out {t}/new", "has no room for the question"),
    "another model": ("evaluate {m}/other --task passkey --length 300 --samples 1 --out {t}/run", "begun with another model"),
    "another seed": ("evaluate {m}/t5 --task passkey --length 300 --seed 1 --out {t}/run", "another seed: 0 then, 1 now"),
    "another directory": ("evaluate {m}/t5 --task passkey --length 300 --out {m}/t5", "is not the config of a run directory"),
    "a file to write into": ("evaluate {m}/t5 --task passkey --length 300 --out {m}/a.json", "cannot use"),
    "a threshold in percent": ("reach {m}/t5 --threshold 85", "threshold is a mean score above 0 and at most 1"),
    "a reach below training": ("reach {m}/t5 --longest 100", "longest (100) is below the training length 256"),
    "no Ray address": ("evaluate {m}/t5 --ray bogus --task passkey --length 300 --out {t}/new", "bogus is not a Ray address"),
    "a training length of nothing": ("evaluate {m}/t5 --train-length 0 --task passkey --length 300 --out {t}/new", "above 1"),
    "a temperature of next to nothing": (T5_PASSKEY + "constant:tau=1e-40", "inverse float32 can hold"),
    "an unknown task to reach for": ("reach {m}/t5 --task chess", "no task 'chess'"),
}


@pytest.fixture(scope="module")
def runs(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    command = ["evaluate", models / "t5", "--task", "passkey", "--length", LONG, "--samples", 1, "--out", folder / "run"]
    assert run([str(part) for part in command]) == 0
    return folder


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_gets_status_2_and_one_line_and_writes_nothing(case: str, runs: Path, refused: Callable[..., None]) -> None:
    refused(*REFUSALS[case], runs)


@pytest.mark.usefixtures("all_right")
def test_reach_prints_a_table_for_none_and_the_method(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    spec = f"@{models / 'a.json'}"
    command = ("reach", models / "t5", "--method", spec, "--longest", LONG, "--samples", 24, "--out", tmp_path / "run")
    said = lengthwise(*command)
    assert said.status == 0
    header, none, aligned, _, legend = said.out.splitlines()
    assert header.split() == ["method", "task", "reach", "interval", "score", "there", "score", "above"]
    assert none.split() == ["none", "passkey", ">=", "300", "300", "...", "300", "100", "at", "300", "-"]
    assert aligned.split()[0] == spec
    assert legend.startswith("percent; a length works from 85 on; interval: ")
    assert said.err[-1] == f"lengthwise: records: {tmp_path / 'run'}"
    assert {record.length for record in read_lines(tmp_path / "run" / "records.jsonl", Record)} == {256, 300}


def test_reach_prints_one_json_document(models: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]) -> None:
    said = lengthwise("reach", models / "t5", "--samples", 1, "--longest", 256, "--json")
    document = json.loads(said.out)
    assert (document["model"], document["threshold"]) == (str(models / "t5"), 0.85)
    (row,) = document["reach"]
    assert (row["method"], row["task"], row["length"], row["says"]) == ("none", "passkey", None, "not even at 256")


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ("evaluate M --ray", "evaluate M --ray local"),
        ("evaluate M --ray --out x", "evaluate M --ray local --out x"),
        ("evaluate --ray M --out x", "evaluate --ray local M --out x"),
        ("evaluate M --ray 10.0.0.1:6379 --out x", "evaluate M --ray 10.0.0.1:6379 --out x"),
        ("evaluate M --ray ray://head:10001", "evaluate M --ray ray://head:10001"),
        ("evaluate M --ray auto", "evaluate M --ray auto"),
        ("evaluate M --ray local", "evaluate M --ray local"),
        ("evaluate M --ray=auto", "evaluate M --ray=auto"),
        ("evaluate M --ray bogus --out x", "evaluate M --ray bogus --out x"),
        ("evaluate --ray bogus M --out x", "evaluate --ray bogus M --out x"),
        ("evaluate --force --ray M --out x", "evaluate --force --ray local M --out x"),
        ("evaluate --out x --method=log --ray M", "evaluate --out x --method=log --ray local M"),
        ("", ""),
    ],
)
def test_ray_may_stand_without_an_address(given: str, understood: str) -> None:
    assert with_ray_address(given.split()) == understood.split()


def test_ray_is_handed_on(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    """To the part that needs Ray, with what workers need; Ray itself is tested elsewhere."""
    from lengthwise.evaluation.sweep import on_ray

    seen = []

    def run_jobs(evaluated: Any, cluster: Any, *rest: Any) -> None:
        seen.append(cluster)
        in_process.run_jobs(evaluated, *rest)

    monkeypatch.setattr(on_ray, "run_jobs", run_jobs)
    command = ("evaluate", models / "t5", "--task", "passkey", "--length", LONG, "--samples", 1, "--out", tmp_path)
    assert lengthwise(*command, "--ray", "--device", "cuda").status == 0
    (cluster,) = seen
    assert (cluster.address, cluster.source, cluster.dtype) == ("local", str(models / "t5"), "float32")
    assert (cluster.device, cluster.gpus) == ("cuda", 1)
