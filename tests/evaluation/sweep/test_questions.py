"""What is asked: lengths, files, files at lengths, and files in buckets."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.evaluation.sweep import cells
from lengthwise.evaluation.sweep.questions import Questions, by_length, has_room
from lengthwise.records import Record, read_lines, summarise
from lengthwise.report.runs.depth_map import depth_maps
from lengthwise.report.runs.group import RunGroup, read_run
from lengthwise.report.runs.provenance import commands
from lengthwise.report.styles import method_styles
from lengthwise.tasks import TASKS, Sample, passkey
from tests.conftest import Said
from tests.helpers.answering import answering_briefly, saved

TOKENIZER = ByT5Tokenizer()
NEW = ["code_completion", "code_key_retrieval", "multi_document_qa"]


def of_tokens(*tokens: int) -> list[Sample]:
    return [Sample(f"prompt {at}", "x", count, None, "") for at, count in enumerate(tokens)]


def lines_of(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_cases_share_a_mean_with_those_of_their_bucket() -> None:
    cases = of_tokens(2999, 1000, 15, 1999, 2000, 999)
    found = by_length(cases, 1000)
    assert {length: [case.tokens for case in some] for length, some in found.items()} == {
        507: [15, 999],
        1499: [1000, 1999],
        2499: [2999, 2000],
    }
    assert by_length(cases, None) == {1502: cases}
    # A mean that would round up stays in its bucket
    assert [*by_length(of_tokens(1999, 2000), 1000)] == [1999, 2000]


def test_a_file_of_code_cases_is_asked_bucket_by_bucket(tmp_path: Path) -> None:
    contexts = ["x = 1\n" * count for count in (10, 200, 12, 180)]  # 60, 1200, 72, 1080 bytes
    path = lines_of(tmp_path / "lcc.jsonl", *({"context": text, "gt": "y = 2"} for text in contexts))
    asked = {"methods": ["none", "truncate"], "tasks": ["code_completion"], "data": path, "samples": 2, "show_progress": False}
    records = lw.evaluate(answering_briefly("t5"), TOKENIZER, out=tmp_path / "run", **asked)
    means = {(cell.task, cell.method, cell.length): cell.n for cell in summarise(records)}
    both = ("code_completion", "code_completion_es")
    assert means == {(task, method, n): 2 for task in both for method in ("none", "truncate") for n in (67, 1141)}
    # One sample of each bucket, then the rest
    few = lw.evaluate(answering_briefly("t5"), TOKENIZER, out=tmp_path / "few", **{**asked, "samples": 1})
    assert [record.tokens for record in few if (record.method, record.task) == ("none", both[0])] == [61, 1201]


def test_a_length_that_only_some_questions_fit_into_is_refused_before_any_is_asked() -> None:
    # Names of lines are of different lengths
    length = next(n for n in range(200, 400) if has_room(TASKS["line"], TOKENIZER, n, 0))
    assert Questions(TOKENIZER, ["passkey", "line"], [length], samples=1, seed=0).lengths == [length]
    with pytest.raises(lw.BadInput, match=f"line: a prompt of {length} tokens has no room for the question"):
        Questions(TOKENIZER, ["passkey", "line"], [length], samples=5, seed=0)


def test_every_answer_has_both_scores_in_the_file_and_in_what_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = TASKS["code_completion"].samples(TOKENIZER, 300, 3, 0)
    said = iter([[f"  {samples[0].target}\nmore"], [samples[1].target[:-2]], [""]])
    monkeypatch.setattr(cells, "greedy_answers", lambda *_: next(said))
    options = {"tasks": ["code_completion"], "lengths": [300], "samples": 3, "batch_tokens": 1, "show_progress": False}
    records = lw.evaluate(answering_briefly("t5"), TOKENIZER, out=tmp_path, **options)
    assert [record.task for record in records] == ["code_completion"] * 3 + ["code_completion_es"] * 3
    letters = len(samples[1].target)
    assert [record.score for record in records[:3]] == [1.0, 0.0, 0.0]
    assert [record.score for record in records[3:]] == pytest.approx([1.0, 2 * (letters - 2) / (2 * letters - 2), 0.0])
    assert sorted(read_lines(tmp_path / "records.jsonl", Record), key=lambda r: r.key) == sorted(records, key=lambda r: r.key)
    # Nothing is asked again
    assert lw.evaluate(answering_briefly("t5"), TOKENIZER, out=tmp_path, **options) == records
    # A run that was killed between two lines of one answer: the answer's own score comes last, so it is given again
    lines = (tmp_path / "records.jsonl").read_text().splitlines(keepends=True)
    assert [json.loads(line)["task"] for line in lines[-2:]] == ["code_completion_es", "code_completion"]
    (tmp_path / "records.jsonl").write_text("".join(lines[:-1]))
    said = iter([[""]])
    again = lw.evaluate(answering_briefly("t5"), TOKENIZER, out=tmp_path, **options)
    assert [record.score for record in again] == [record.score for record in records]


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_tiny_models_are_asked_the_tasks_at_lengths(family: str, tmp_path: Path) -> None:
    options = {"lengths": [500], "samples": 2, "sharpness": False, "show_progress": False}
    records = lw.evaluate(answering_briefly(family), TOKENIZER, ["truncate", "log"], NEW, out=tmp_path, **options)
    assert len(records) == 2 * 2 * (3 + 1)
    asked = {name: TASKS[name].samples(TOKENIZER, 500, 2, 0) for name in NEW}
    for record in records:
        sample = asked[record.task.removesuffix("_es")][record.index]
        assert (record.target, record.tokens, record.depth) == (sample.target, sample.tokens, sample.depth)
        assert 0 <= record.score <= 1
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["tasks"]["multi_document_qa"] is None
    assert config["tasks"]["code_completion"].startswith("the standard library of Python 3.")
    assert config["given"] == {}


def test_the_report_maps_the_place_of_the_gold_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost in the middle: a model that only finds the answer at both ends."""
    samples = TASKS["multi_document_qa"].samples(TOKENIZER, 1200, 30, 0)
    assert all(sample.depth is not None for sample in samples)
    said = iter([[sample.target if abs((sample.depth or 0) - 0.5) > 0.3 else "lost"] for sample in samples])
    monkeypatch.setattr(cells, "greedy_answers", lambda *_: next(said))
    options = {"lengths": [1200], "samples": 30, "batch_tokens": 1, "sharpness": False, "show_progress": False}
    lw.evaluate(answering_briefly("t5"), TOKENIZER, ["none"], ["multi_document_qa"], out=tmp_path, **options)
    group = RunGroup((read_run(tmp_path),))
    (found,) = depth_maps(group, group.tasks[0], method_styles(group.methods))
    by_depth = [cell.mean for cell in sorted(found.cells, key=lambda cell: cell.y)]
    assert by_depth[0] == by_depth[-1] == 1.0
    assert min(by_depth) == by_depth[len(by_depth) // 2] == 0.0


def test_files_and_folders_at_lengths_are_what_samples_are_made_of(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    model, out = saved(answering_briefly("t5"), tmp_path / "t5"), tmp_path / "run"
    ctxs = [{"title": "T", "text": "Text number {k}, nothing more.", "isgold": True}]
    lines = [json.loads(json.dumps({"question": f"q{k}", "answers": [f"number {k},"], "ctxs": ctxs}).replace("{k}", str(k)))
             for k in range(4)]  # fmt: skip
    questions = lines_of(tmp_path / "nq.jsonl", *lines)
    command = ["evaluate", model, "--task", "multi_document_qa", "--length", 400, "--samples", 2, "--out", out]
    assert lengthwise(*command, "--data", questions).status == 0
    config = json.loads((out / "config.json").read_text())
    assert config["tasks"]["multi_document_qa"].startswith("nq.jsonl (")
    assert config["data"] == {}
    assert {record.target for record in read_lines(out / "records.jsonl", Record)} < {f"number {k}," for k in range(4)}
    # The command that the report prints asks for the same
    before = (out / "records.jsonl").read_bytes()
    (again,) = commands(RunGroup((read_run(out),)))
    assert lengthwise(*shlex.split(again)[1:]).status == 0
    assert (out / "records.jsonl").read_bytes() == before
    assert lengthwise(*shlex.split(again)[1:-1], tmp_path / "again").status == 0
    targets = [[record.target for record in read_lines(path / "records.jsonl", Record)] for path in (out, tmp_path / "again")]
    assert targets[0] == targets[1]
    # The same directory does not take made-up ones beside them
    refused = lengthwise(*command)
    assert refused.status == 2
    assert "holds samples of multi_document_qa made of nq.jsonl" in refused.err[-1]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tasks": ["passkey"], "lengths": [500]}, "give lengths or a file of cases .--data., not both"),
        ({"tasks": NEW, "lengths": [500]}, "--data holds cases of one task; give one --task"),
        ({"tasks": ["code_completion"], "lengths": [500]}, "holds no files of code"),
    ],
)
def test_what_cannot_be_asked_is_refused(options: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(lw.BadInput, match=complaint):
        Questions(TOKENIZER, samples=1, seed=0, data=tmp_path, **options)


@pytest.mark.parametrize(
    ("task", "target"), [("passkey", "Paris"), ("line", "1,234"), ("topic", "?"), ("code_completion", "a = 1\nb = 2")]
)
def test_cases_whose_own_target_would_be_wrong_are_refused(task: str, target: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    cases = [{"prompt": "What is it? It is", "target": target} for target in ("77", target)]
    path.write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")
    with pytest.raises(lw.BadInput, match=rf"case 2 of .*: no answer would be right, because the task {task} does not find"):
        Questions(TOKENIZER, [task], [], samples=2, seed=0, data=path)
    Questions(TOKENIZER, ["answer"], [], samples=2, seed=0, data=path)


def test_a_case_with_another_right_answer_is_asked(tmp_path: Path) -> None:
    ctxs = [{"title": "T", "text": "They live in NYC.", "isgold": True}]
    path = lines_of(tmp_path / "nq.jsonl", {"question": "Where?", "answers": ["New\nYork", "NYC"], "ctxs": ctxs})
    ((case,),) = Questions(TOKENIZER, ["multi_document_qa"], [], samples=1, seed=0, data=path).cases.values()
    assert TASKS["multi_document_qa"].mark("NYC", case) == 1


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (lambda some: some[:1], "asked for 2 samples, the task passkey must make a list of 2 Samples, not"),
        (lambda some: [replace(sample, target=5) for sample in some], "has made a Sample that is none: .* target=5"),
        (lambda some: [replace(sample, depth=2.5) for sample in some], "has made a Sample that is none: .* depth=2.5"),
        (lambda some: [replace(sample, depth="0.5") for sample in some], "has made a Sample that is none: .* depth='0.5'"),
        (lambda some: [replace(sample, tokens=True) for sample in some], "has made a Sample that is none: .* tokens=True"),
        (lambda some: [replace(sample, question="What?") for sample in some], "does not end with its question 'What\\?'"),
        (lambda some: [replace(sample, target="\ud83d") for sample in some], "has made a Sample that is none: prompt, target"),
    ],
)
def test_samples_that_no_record_could_hold_are_refused(made: Any, complaint: str) -> None:
    own = replace(TASKS["passkey"], samples=lambda *given: made(passkey.samples(*given)), material="mine")
    with pytest.raises(lw.BadInput, match=complaint):
        lw.evaluate(answering_briefly("t5"), TOKENIZER, tasks={"passkey": own}, lengths=[240], samples=2, show_progress=False)


def test_prompts_that_are_not_of_the_length_asked_for_are_told() -> None:
    own = replace(TASKS["passkey"], samples=lambda *given: passkey.samples(TOKENIZER, 300, *given[2:]), material="mine")
    Questions(TOKENIZER, {"passkey": own}, [310], samples=2, seed=0)
    for length in (250, 400):
        with pytest.warns(UserWarning, match=rf"^asked for {length} tokens, the task passkey makes prompts of (29\d|300)$"):
            Questions(TOKENIZER, {"passkey": own}, [length], samples=2, seed=0)
