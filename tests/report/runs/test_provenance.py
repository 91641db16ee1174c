"""How the numbers were obtained."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from lengthwise.cli import app
from lengthwise.report.runs.group import RunGroup, read_run
from lengthwise.report.runs.provenance import commands, describe, facts, named_in_python
from lengthwise.tasks import TASKS
from tests.report.conftest import alignment, config, record, records

MakeRun = Callable[..., Path]


def test_the_facts_name_model_settings_samples_and_versions(full_run: Path):
    found = dict(facts(RunGroup((read_run(full_run),))))
    assert found["model"] == "embedded"
    assert "weights 1e2cb6c508c16d15" in found["fingerprint"]
    assert (found["train length"], found["seed"], found["dtype"], found["samples a cell"]) == ("512", "0", "bfloat16", "24")
    assert found["time spent on answers"] == "7 min"
    assert found["made with"] == "lengthwise 0.1.0, transformers 5.22.2, torch 2.13.0, device cpu"
    assert found["read from"] == str(full_run)


def test_methods_are_described(full_run: Path):
    group = RunGroup((read_run(full_run),))
    assert describe("none", group) == "the model as it is"
    assert "last 512 tokens" in describe("truncate", group)
    assert "keep P_max as at training length, one a layer, at 2,048, 4,096 and 15,000 tokens of prose" in describe(
        "@out/pmax-layer.json", group
    )


def test_a_hedge_is_described_by_both_its_readings(make_run: MakeRun):
    run = make_run(
        {**config(["hedge+log"]), "reads": {"hedge+log": "both"}}, records(["hedge+log"], ["passkey"], [1024], samples=1)
    )
    assert describe("hedge+log", RunGroup((read_run(run),))) == (
        "two readings mixed by Bayes' rule, the last 512 tokens as they are and the whole with a rule that needs no calibration"
    )


def test_the_commands_make_the_cells_again(make_run: MakeRun):
    lines = records(["none", "log"], ["passkey", "line"], [512, 1024], samples=3)
    lines += [record("none", "line", 5210, k, data="my file.jsonl") for k in range(2)]
    run = make_run(config(["none", "log"]), lines)
    assert commands(RunGroup((read_run(run),))) == [
        "lengthwise evaluate embedded --method none --method log --task passkey --task line "
        f"--length 512 --length 1024 --samples 3 --seed 0 --dtype bfloat16 --train-length 512 --batch-tokens 1024 --out {run}",
        f"lengthwise evaluate embedded --method none --task line --data 'my file.jsonl' --samples 2 "
        f"--seed 0 --dtype bfloat16 --train-length 512 --batch-tokens 1024 --out {run}",
    ]


def parsed(command: str) -> dict[str, Any]:
    """What `lengthwise` understands of a printed command."""
    program, name, *words = shlex.split(command)
    assert program == "lengthwise"
    parameters: dict[str, Any] = typer.main.get_command(app).commands[name].make_context(name, words).params  # type: ignore[attr-defined]
    return parameters


def of_code(task: str, length: int, index: int, **changes: Any) -> dict[str, Any]:
    return {**record("none", "line", length, index), "task": task, **changes}


def test_a_further_score_of_a_task_is_no_task_of_a_command(make_run: MakeRun):
    names = ("code_completion_es", "code_completion")
    lines = [of_code(name, 1024, 0) for name in names] + [of_code(name, 900, 0, data="cases.jsonl") for name in names]
    found = [parsed(line) for line in commands(RunGroup((read_run(make_run(config(["none"]), lines)),)))]
    assert [(list(one["task"]), list(one["length"] or ()), one["data"]) for one in found] == [
        (["code_completion"], [1024], None),
        (["code_completion"], [], Path("cases.jsonl")),
    ]


def test_further_scores_are_told_by_their_names():
    further = {(name, task) for task, of in TASKS.items() for name in of.also}
    names = {*TASKS, *(name for name, _ in further)}
    assert {(name, task) for name in names for task in TASKS if name.startswith(f"{task}_")} == further


MADE_OF = "my code (0123456789abcdef)"


@pytest.mark.parametrize(
    ("given", "expected"),
    [({MADE_OF: "/home/me/my code"}, "/home/me/my code"), ({}, "my code")],
    ids=["now", "earlier versions"],
)
def test_samples_made_of_a_folder_are_asked_of_that_folder(make_run: MakeRun, given: dict[str, str], expected: str):
    """Each task by itself, as --data wants it."""
    names = ("code_completion", "code_key_retrieval")
    document = {**config(["none"]), "tasks": {**dict.fromkeys(names, MADE_OF), "line": None}, "given": given}
    lines = [of_code(name, n, 0) for name in (*names, "line") for n in (512, 1024)]
    group = RunGroup((read_run(make_run(document, lines)),))
    found = {tuple(one["task"]): one for one in map(parsed, commands(group))}
    assert {tasks: one["data"] for tasks, one in found.items()} == {
        ("code_completion",): Path(expected),
        ("code_key_retrieval",): Path(expected),
        ("line",): None,
    }
    assert all(one["length"] == [512, 1024] for one in found.values())
    assert dict(facts(group))["samples of code_completion"] == MADE_OF


def test_a_file_of_the_hub_keeps_its_whole_name_in_the_command(make_run: MakeRun):
    document = {**config(["none"]), "data": {"cases@train": "abc"}, "given": {"cases@train": "hub:someone/cases@train"}}
    run = make_run(document, [record("none", "line", 5210, 0, data="cases@train")])
    assert [parsed(line)["data"] for line in commands(RunGroup((read_run(run),)))] == [Path("hub:someone/cases@train")]


def test_an_alignment_named_in_python_becomes_a_file_in_the_command(make_run: MakeRun):
    document = {**config(), "methods": {"none": None, "mine": alignment("model")}}
    group = RunGroup((read_run(make_run(document, records(["none", "mine"], ["line"], [512], samples=1))),))
    assert named_in_python(group) == ["mine"]
    assert "--method none --method @mine.json --task" in commands(group)[0]


def test_official_files_are_told_with_their_digests(make_run: MakeRun):
    document = {**config(["none"]), "data": {"200.jsonl": "abc123"}}
    group = RunGroup((read_run(make_run(document, [record("none", "line", 5210, 0, data="200.jsonl")])),))
    assert dict(facts(group))["file 200.jsonl"] == "abc123"


def test_samples_of_other_material_are_told(make_run: MakeRun):
    """Those that were given in Python have no command; where that is not known, it is not said."""
    made = "names of held-out words"
    document = {**config(["none"]), "tasks": {"line": made, "passkey": None}}
    lines = [record("none", task, 512, 0) for task in ("line", "passkey")]
    group = RunGroup((read_run(make_run({**document, "given": {made: None}}, lines)),))
    told = dict(facts(group))
    assert told["samples of line"] == f"{made}, given in Python"
    assert "samples of passkey" not in told
    assert [parsed(line)["task"] for line in commands(group)] == [["passkey"]]
    unknown = RunGroup((read_run(make_run(document, lines)),))
    assert dict(facts(unknown))["samples of line"] == made
    assert [parsed(line)["task"] for line in commands(unknown)] == [["line", "passkey"]]


def test_a_command_asks_in_a_chat_as_the_run_did(make_run: MakeRun):
    document = config(["none"])
    document["settings"]["chat"] = True
    group = RunGroup((read_run(make_run(document, records(["none"], ["passkey"], [512], samples=1))),))
    assert [parsed(line)["chat"] for line in commands(group)] == [True]


def test_a_task_named_after_another_is_asked_all_the_same(make_run: MakeRun):
    document = {**config(["none"]), "tasks": {"line": None, "line_long": None}}
    lines = [of_code(name, 1024, 0) for name in ("line", "line_long")]
    (found,) = [parsed(line) for line in commands(RunGroup((read_run(make_run(document, lines)),)))]
    assert list(found["task"]) == ["line", "line_long"]
