"""Pass keys in long text, asked of a tiny Llama that answers with digits."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import lengthwise as lw
from experiments.rope_passkeys import page, run
from lengthwise.evaluation.sweep.generate import greedy_answers
from lengthwise.models.load import load
from lengthwise.records import Record, read_lines
from lengthwise.tasks import passkey as task
from tests.helpers.answering import TRAIN_LENGTH, answering, saved

SHORT, LONG, SAMPLES = TRAIN_LENGTH, 320, 6
ALIGNED = "yarn:factor={factor},temperature=false+{pmax-layer}"
METHODS = ("none", "streaming_llm", ALIGNED, "truncate", "no_such_method")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(answering("llama"), tmp_path_factory.mktemp("passkeys") / "tiny"))


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file: Path = tmp_path_factory.mktemp("books") / "novel.txt"
    file.write_text("\n\n".join(f"Chapter {k}\n\nIt rained on day {k},\nand nobody came. The hen slept." for k in range(40)))
    return file


def options(model: str, out: Path, books: Path, *methods: str, **changes: Any) -> run.Options:
    given = {"lengths": (SHORT, LONG), "samples": SAMPLES, "books": (books,), "device": "cpu", "batch_tokens": 700}
    return run.Options(**{"model": model, "out": out, "methods": methods, "command": "as typed", **given, **changes})


@pytest.fixture(scope="module")
def out(model: str, books: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("asked")
    run.run(options(model, folder, books, *METHODS))
    return folder


def records(out: Path) -> list[Record]:
    return read_lines(out / "run" / "records.jsonl", Record)


def test_every_depth_is_asked_in_turn_and_the_answer_fits_into_the_length(out: Path) -> None:
    plain = [record for record in records(out) if record.method == "none"]
    for length in (SHORT, LONG):
        own = sorted((record for record in plain if record.length == length), key=lambda record: record.index)
        assert [record.depth for record in own] == [*run.DEPTHS, run.DEPTHS[0]]
        assert all(0.98 * (length - task.ANSWER_TOKENS) <= record.tokens <= length - task.ANSWER_TOKENS for record in own)


def test_answers_are_those_of_the_method(out: Path, model: str, books: Path) -> None:
    """Asked one by one, without a batch and without the sweep."""
    loaded, tokenizer = load(model, device="cpu")
    samples = run.hidden_in((books,), SAMPLES).samples(tokenizer, LONG, SAMPLES, 0)
    assert all("The hen slept." in sample.prompt for sample in samples)
    bare = "yarn:factor=1.25,temperature=false"
    alignment = lw.Alignment.load(out / "alignments" / f"yarn-factor-1.25-temperature-false-pmax-layer-{LONG}.json")
    methods: dict[str, Any] = {"none": "none", "streaming_llm": "streaming_llm"}
    methods[f"{bare}+pmax-layer-{LONG}"] = [bare, alignment]
    long = [record for record in records(out) if record.length == LONG]
    assert {record.method for record in long} == {*methods, "truncate"}
    for record in long:
        if record.index < 2 and record.method in methods:
            with lw.extend(loaded, methods[record.method]):
                ids = tokenizer(samples[record.index].prompt).input_ids
                (answer,) = greedy_answers(loaded, tokenizer, [ids], task.ANSWER_TOKENS)
            assert (record.prediction, record.score) == (answer, task.score(answer, record.target))


def test_up_to_the_training_length_an_alignment_is_not_calibrated_and_changes_nothing(out: Path) -> None:
    short = {record.method: record for record in records(out) if record.length == SHORT and record.index == 0}
    assert short[run.recorded_as(ALIGNED, SHORT, TRAIN_LENGTH)].prediction == short["none"].prediction
    assert len(list((out / "alignments").glob("*.json"))) == 1


def test_a_second_call_asks_only_what_is_missing_and_refusals_are_told(
    out: Path, model: str, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (out / "run" / "records.jsonl").read_text()
    asked: list[str] = []
    real = lw.evaluate
    monkeypatch.setattr(lw, "evaluate", lambda *given, **more: asked.extend(given[2]) or real(*given, **more))
    document = run.run(options(model, out, books, *METHODS, "log"))
    assert asked == ["log", "log"]
    assert (out / "run" / "records.jsonl").read_text().startswith(before)
    assert document["missing"] == 0
    assert document["refused"].keys() == {f"no_such_method at {n} tokens" for n in (SHORT, LONG)}
    assert "- `no_such_method at 320 tokens`: no method 'no_such_method'" in (out / "tiny.md").read_text()
    with pytest.raises(lw.BadInput, match="begun with another seed: 0 then, 1 now"):
        run.run(options(model, out, books, "none", seed=1, samples=SAMPLES + 1))


def test_tables_are_means_with_wilsons_interval(out: Path) -> None:
    document = json.loads((out / "tiny.json").read_text())
    right = [record.score for record in records(out) if (record.method, record.length) == ("none", LONG)]
    score = next(score for score in document["by_length"] if (score["method"], score["at"]) == ("none", LONG))
    # The values p at which the right ones stand 1.96 standard deviations from p n: roots of a quadratic
    n, z2 = len(right), 1.959963984540054**2
    a, b, c = n + z2, -(2 * sum(right) + z2), sum(right) ** 2 / n
    ends = [(-b + sign * math.sqrt(b * b - 4 * a * c)) / (2 * a) for sign in (-1, 1)]
    assert [score["low"], score["high"]] == pytest.approx(ends, abs=1e-9)
    assert sum(score["n"] for score in document["by_depth"] if score["method"] == "none") == SAMPLES
    few = {"method": "log", "at": 200, "mean": 2 / 3, "low": 0.2, "high": 0.94, "n": 3}
    assert page._table([few], 5, "{:,}").splitlines()[-1] == "| `log` | 67 [20, 94, n 3] |"
