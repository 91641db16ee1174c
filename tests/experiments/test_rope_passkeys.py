"""Pass keys in long text, asked of a tiny Llama that answers with digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lengthwise as lw
from experiments.rope_passkeys import run
from lengthwise.evaluation.sweep.generate import greedy_answers
from lengthwise.models.load import load
from lengthwise.records import Record, read_lines
from lengthwise.tasks import passkey as task
from tests.helpers.answering import TRAIN_LENGTH, answering, saved

# Whole runs, before a release
pytestmark = pytest.mark.sweep

SHORT, LONG, SAMPLES = TRAIN_LENGTH, 320, 6
ALIGNED = "yarn:factor={factor},temperature=false+{pmax-layer}"
METHODS = ("none", "streaming_llm", ALIGNED, "truncate", "no_such_method")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(answering("llama"), tmp_path_factory.mktemp("passkeys") / "tiny"))


@pytest.fixture(scope="module")
def out(model: str, novels: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("asked")
    given = {"lengths": (SHORT, LONG), "samples": SAMPLES, "books": novels[:1], "device": "cpu", "batch_tokens": 700}
    run.run(run.Options(model=model, out=folder, methods=METHODS, command="as typed", **given))
    return folder


def records(out: Path) -> list[Record]:
    return read_lines(out / "run" / "records.jsonl", Record)


def test_every_depth_is_asked_in_turn_and_the_answer_fits_into_the_length(out: Path) -> None:
    plain = [record for record in records(out) if record.method == "none"]
    for length in (SHORT, LONG):
        own = sorted((record for record in plain if record.length == length), key=lambda record: record.index)
        assert [record.depth for record in own] == [*run.DEPTHS, run.DEPTHS[0]]
        assert all(0.98 * (length - task.ANSWER_TOKENS) <= record.tokens <= length - task.ANSWER_TOKENS for record in own)
    document = json.loads((out / "tiny.json").read_text())
    assert document["missing"] == 0
    assert document["refused"].keys() == {f"no_such_method at {n} tokens" for n in (SHORT, LONG)}
    # Up to the training length an alignment is not calibrated, and changes nothing
    short = {record.method: record for record in records(out) if record.length == SHORT and record.index == 0}
    assert short[run.recorded_as(ALIGNED, SHORT, TRAIN_LENGTH)].prediction == short["none"].prediction


def test_answers_are_those_of_the_method(out: Path, model: str, novels: tuple[Path, ...]) -> None:
    """Asked one by one, without a batch and without the sweep."""
    loaded, tokenizer = load(model, device="cpu")
    samples = run.hidden_in(novels[:1], SAMPLES).samples(tokenizer, LONG, SAMPLES, 0)
    assert all(" begins," in sample.prompt for sample in samples)
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
