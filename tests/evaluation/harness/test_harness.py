"""The command line of the harness with our model, on LongBench-E's files in a folder: no network."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest

import lengthwise.evaluation.harness as harness_module
from lengthwise.errors import BadInput
from lengthwise.evaluation.harness import harness
from tests.conftest import Said
from tests.evaluation.harness.conftest import DIGITS, document, write
from tests.helpers.answering import answering, saved

pytest.importorskip("lm_eval", reason="lm-eval is not installed; pip install 'lengthwise[lm-eval]'")
from lm_eval.utils import make_table
from pytablewriter import MarkdownTableWriter

# What LongBench's own scores import is slower without a package it does not ask for
pytestmark = pytest.mark.filterwarnings("ignore:Using slow pure-python SequenceMatcher")
WORDS = (100, 5000, 9000)


@pytest.mark.usefixtures("few_tasks")
def test_longbench_e_runs_from_local_files_with_a_method(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    model = saved(answering("llama"), tmp_path / "llama")
    data, out = tmp_path / "[\U0001f4c1]", tmp_path / "out"
    write(data, "lcc", *(document(length=words, context=f"x = {words}\n") for words in WORDS))
    write(data, "repobench-p", document(input="y = x\n", context="x = 1\n"))
    arguments = [
        "--model_args",
        f"pretrained={model},method='streaming_llm:window=64,sinks=4',add_bos_token=False",
        "--data",
        data,
    ]
    said = lengthwise("harness", *arguments, "--tasks", "longbench_tasks_e", "--output_path", out, "--log_samples")
    assert said.status == 0, said.err
    assert "|Version|Filter|n-shot|Metric|" in said.out.replace(" ", "")

    [results] = out.rglob("results_*.json")
    assert (
        json.loads(results.read_text(encoding="utf-8"))["config"]["model_args"]["method"] == "streaming_llm:window=64,sinks=4"
    )
    [samples] = out.rglob("samples_longbench_lcc_e_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    # The benchmark's own prompt, and its score computed by hand
    assert [line["arguments"]["gen_args_0"]["arg_0"] for line in lines] == [
        f"Please complete the code given below. \nx = {words}\nNext line of code:" for words in WORDS
    ]
    scores = [round(100 * difflib.SequenceMatcher(None, one["filtered_resps"][0], DIGITS).ratio()) / 100 for one in lines]
    assert [line["score"] for line in lines] == pytest.approx(scores)
    assert all(score > 0 for score in scores)

    [other] = out.rglob("samples_longbench_repobench-p_e_*.jsonl")
    asked = json.loads(other.read_text(encoding="utf-8"))
    assert asked["arguments"]["gen_args_0"]["arg_0"].endswith("x = 1\ny = x\nNext line of code:")

    means = json.loads(lengthwise("longbench", out, "--json").out)
    assert means["tasks"]["lcc"]["all"] == pytest.approx(100 * fmean(scores))
    assert means["tasks"]["lcc"]["4-8k"] == pytest.approx(100 * scores[1])
    table = lengthwise("longbench", out).out.splitlines()
    assert table[0].split() == ["task", "0-4k", "4-8k", "8k+", "all"]
    assert [line.split()[0] for line in table[1:4]] == ["lcc", "repobench-p", "mean"]
    assert table[2].split()[2:4] == ["-", "-"]
    assert table[-1] == "percent, 2 of 13 tasks"


@pytest.mark.usefixtures("few_tasks")
def test_bad_input_is_said_in_one_line(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    data = tmp_path / "data"
    write(data, "lcc", document())
    task = ("--tasks", "longbench_lcc_e", "--data", data)
    for arguments, complaint in (
        (("--model_args", "pretrained=embedded,method=nonsense", *task), "nonsense"),
        (("--model_args", f"pretrained={tmp_path / 'no'}", *task), "no directory"),
        (("--include_path", tmp_path, *task), "--data brings its own --include_path"),
        ((f"--include_path={tmp_path}", *task), "--data brings its own --include_path"),
        (("--inc", tmp_path, *task), "--data brings its own --include_path"),
        (("--tasks", "longbench_lcc_e", "--data", tmp_path), "holds no file such as qasper_e.jsonl as in LongBench-E or 4096"),
    ):
        said = lengthwise("harness", *arguments)
        assert said.status == 2
        assert said.err[-1].startswith("lengthwise: ")
        assert complaint in said.err[-1]


def test_the_harnesss_tables_have_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[str] = []
    results = {"results": {"lcc": {"score,none": 0.5, "score_stderr,none": 0.1}}, "versions": {"lcc": 4}}
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: tables.append(make_table(results)))
    before = vars(MarkdownTableWriter).copy()
    assert harness(["--tasks", "lcc"]) == 0
    names = tables[0].splitlines()[0].split("|")
    assert [name.strip() for name in names] == [
        "",
        "Tasks",
        "Version",
        "Filter",
        "n-shot",
        "Metric",
        "",
        "Value",
        "",
        "Stderr",
        "",
    ]
    assert vars(MarkdownTableWriter) == before


def test_options_that_the_harness_does_not_know_are_its_own_to_refuse(lengthwise: Callable[..., Said]) -> None:
    assert lengthwise("harness", "--tasks", "x", "--nonsense").status == 2


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--tasks", "a"], ["run", "--model", "lengthwise", "--tasks", "a"]),
        (["run", "--tasks", "a"], ["run", "--model", "lengthwise", "--tasks", "a"]),
        (["--model", "hf", "--tasks", "a"], ["run", "--model", "hf", "--tasks", "a"]),
        (["--model=hf", "-t", "a"], ["run", "--model=hf", "-t", "a"]),
        (["--config", "a.yaml"], ["run", "--config", "a.yaml"]),
        (["ls", "tasks"], ["ls", "tasks"]),
    ],
)
def test_our_model_is_the_default(given: list[str], passed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: seen.append(list(harness_module.sys.argv)))
    before = list(harness_module.sys.argv)
    assert harness(given) == 0
    assert seen == [["lm_eval", *passed]]
    assert harness_module.sys.argv == before


@pytest.mark.parametrize(("code", "status"), [(None, 0), (0, 0), (3, 3), ("no such option", 1)])
def test_the_exit_status_is_the_harnesss_own(code: object, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: sys.exit(code))
    assert harness(["--tasks", "a"]) == status


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["run"],
        ["--model_args", "pretrained=x", "--data", "LongBench"],
        ["--tasks", ""],
        ["--tasks=", "--data", "x"],
        ["-t", ","],
    ],
)
def test_a_run_without_a_task_is_refused_before_the_harness_is_imported(
    given: list[str], monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    monkeypatch.setitem(sys.modules, "lengthwise.evaluation.harness.model", None)
    said = lengthwise("harness", *given)
    assert said == Said(2, "", ["lengthwise: no task is named; give --tasks NAME (lengthwise harness ls tasks lists them)"])


@pytest.mark.parametrize("complaint", ["Tasks not found: x", "Need to specify task to evaluate."])
def test_what_the_harness_says_of_tasks_is_one_line(
    complaint: str, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    def refuse() -> None:
        raise ValueError(complaint)

    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", refuse)
    said = lengthwise("harness", "--tasks", "x")
    named = f"lengthwise: the harness has no such task: {complaint} (lengthwise harness ls tasks lists them)"
    assert said == Said(2, "", [named])
    complaint = "shapes do not fit"
    with pytest.raises(ValueError, match="shapes do not fit"):
        lengthwise("harness", "--tasks", "x")


@pytest.mark.usefixtures("few_tasks")
@pytest.mark.parametrize("content", ["model: llama\nsteps: 5\n", "task: [x\n", "- 1\n"])
def test_a_folder_of_tasks_with_another_file_in_it_is_one_line(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    (tmp_path / "settings.yaml").write_text(content)
    monkeypatch.chdir(tmp_path)
    said = lengthwise("harness", "--model_args", "pretrained=embedded", "--tasks", tmp_path)
    assert said.status == 2
    assert said.err[-1].startswith("lengthwise: the harness ")


def test_data_out_of_reach_and_a_missing_package_are_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> None:
        raise ConnectionError("Couldn't reach\nthe hub")

    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", unreachable)
    with pytest.raises(
        BadInput, match=r"out of reach \(Couldn't reach the hub\); LongBench-E and RULER run from local files with --data"
    ):
        harness(["--tasks", "a"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"the harness needs the package lm-eval; pip install 'lengthwise\[lm-eval\]'"):
        harness(["--tasks", "a"])
