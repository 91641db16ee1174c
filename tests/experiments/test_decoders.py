"""Every method on a decoder: asked, read and timed on a tiny Llama that answers with digits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import lengthwise as lw
from experiments.decoders import page, run
from lengthwise.evaluation.likelihood import token_nll
from lengthwise.evaluation.sweep.generate import greedy_answers
from lengthwise.models.load import load
from lengthwise.records import Record, read_lines
from lengthwise.tasks import passkey as task
from tests.helpers.answering import TRAIN_LENGTH, answering, saved

# Whole runs, before a release
pytestmark = pytest.mark.sweep

SHORT, LONG, SAMPLES = TRAIN_LENGTH, 320, 6
YARN = "yarn:factor={factor}"
METHODS = ("none", "streaming_llm", YARN, "truncate", "no_such_method")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(answering("llama"), tmp_path_factory.mktemp("decoders") / "tiny"))


@pytest.fixture(scope="module")
def out(model: str, novels: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("asked")
    given = {"samples": SAMPLES, "books": novels, "device": "cpu", "batch_tokens": 700, "command": "as typed", "streams": 2}
    run.run(run.Options(model=model, out=folder, lengths=(SHORT, LONG), methods=METHODS, costs=True, **given))
    # Other tasks are added to the same folder
    run.run(run.Options(model=model, out=folder, lengths=(LONG,), methods=METHODS[:2], tasks=("ruler_niah_single_1",), **given))
    return folder


def records(out: Path) -> list[Record]:
    return read_lines(out / "run" / "records.jsonl", Record)


def test_every_depth_is_asked_in_turn_and_the_answer_fits_into_the_length(out: Path) -> None:
    plain = [record for record in records(out) if (record.method, record.task) == ("none", "passkey")]
    for length in (SHORT, LONG):
        own = sorted((record for record in plain if record.length == length), key=lambda record: record.index)
        assert [record.depth for record in own] == [*run.DEPTHS, run.DEPTHS[0]]
        assert all(0.98 * (length - task.ANSWER_TOKENS) <= record.tokens <= length - task.ANSWER_TOKENS for record in own)


def test_answers_and_likelihoods_are_those_of_the_method(out: Path, model: str, novels: tuple[Path, ...]) -> None:
    """Asked one by one, without a batch and without the sweep."""
    loaded, tokenizer = load(model, device="cpu")
    samples = run.hidden_in(novels, SAMPLES).samples(tokenizer, LONG, SAMPLES, 0)
    for record in records(out):
        if record.length == LONG and record.index < 2 and record.task == "passkey" and record.method != "truncate":
            with lw.extend(loaded, record.method):
                ids = tokenizer(samples[record.index].prompt).input_ids
                (answer,) = greedy_answers(loaded, tokenizer, [ids], task.ANSWER_TOKENS)
            assert (record.prediction, record.score) == (answer, task.score(answer, record.target))
    source = run.source_of(loaded, tokenizer, TRAIN_LENGTH, 0, 2, novels, out)
    nll = token_nll(loaded, source.read(LONG + 1)[0], method="yarn:factor=1.25")
    document = json.loads((out / "tiny.json").read_text())
    (line,) = (one for one in document["reads"] if (one["method"], one["length"]) == ("yarn:factor={factor}", LONG))
    np.testing.assert_allclose(np.asarray(line["nll"])[:, 0], nll.mean(1), atol=1e-4)


def test_the_document_holds_what_all_calls_found_and_the_page_tells_it(out: Path) -> None:
    document = json.loads((out / "tiny.json").read_text())
    assert document["refused"].keys() == {f"no_such_method at {n} tokens" for n in (SHORT, LONG)}
    assert {(cell["method"], cell["task"]) for cell in document["answers"] if cell["length"] == LONG} == {
        *((method, "passkey") for method in METHODS[:4]),
        *((method, "ruler_niah_single_1") for method in METHODS[:2]),
    }
    assert {(line["method"], line["length"]) for line in document["costs"]} == {
        (m, n) for m in METHODS[:3] for n in (SHORT, LONG)
    }
    told = (out / "tiny.md").read_text()
    assert all(f"| `{method}` |" in told for method in ("none", "streaming_llm", "yarn:factor=F", "truncate"))
    assert "1.000 (1.000-1.000)" in told


def test_a_decoder_that_only_reads_has_a_page_too(model: str, novels: tuple[Path, ...], tmp_path: Path) -> None:
    methods = ("none", "infoscale", "streaming_llm")
    given = {"samples": 0, "books": novels, "device": "cpu", "streams": 2, "methods": methods}
    document = run.run(run.Options(model=model, out=tmp_path, lengths=(LONG,), **given))
    assert (document["answers"], document["model"]["name"], document["settings"]["dtype"]) == ([], "tiny", "float32")
    reads = {line["method"]: np.asarray(line["nll"]) for line in document["reads"]}
    # The first stretch holds all tokens of so short a text, so that those beyond the training length are not told apart
    assert set(reads) == set(methods)
    assert (reads["infoscale"] != reads["none"]).all()
    (scaled,) = document["infoscale"]
    assert (scaled["method"], scaled["other"], scaled["length"]) == ("infoscale", "none", LONG)
    assert scaled["ratio"] == pytest.approx(np.exp((reads["infoscale"] - reads["none"]).mean()))
    assert "What InfoScale adds" in (tmp_path / "tiny.md").read_text()


def test_only_what_stays_above_chance_after_the_correction_is_marked() -> None:
    def cell(right: int) -> dict[str, list[float]]:
        return {"scores": [1.0] * right + [0.0] * (20 - right)}

    cells = {"none": cell(4), "all": cell(20), "some": cell(9), "fewer": cell(0), **{f"same {n}": cell(4) for n in range(10)}}
    # 16 against 0 differ by chance in 2 of 65,536 tries, 5 against 0 in 2 of 32: 13 methods were compared
    assert page._marks(cells) == {"all": "**"}


def test_ruler_differs_from_the_plain_model_by_task_and_from_every_method_over_tasks() -> None:
    def cells(method: str, **scores: list[float]) -> list[dict[str, object]]:
        return [{"method": method, "task": task, "length": LONG, "scores": own} for task, own in scores.items()]

    none, some, all_right = [0.0] * 20, [1.0] * 7 + [0.0] * 13, [1.0] * 20
    answers = cells("none", passkey=none, ruler_vt=none, ruler_cwe=none)
    answers += cells("rerope", ruler_vt=some, ruler_cwe=none)
    # At twice the training length this is the same method as `yarn:factor={factor}`, and not compared again
    answers += cells("yarn:factor={factor}", ruler_vt=all_right) + cells("yarn:factor=2", ruler_vt=all_right)
    document = {"answers": answers, "train_length": LONG // 2}
    rows = page.ruler_differences(document)
    told = {(row["method"], row["over"], row["task"]): row for row in rows}
    assert list(told) == [
        *(("rerope", "none", task) for task in ("ruler_vt", "ruler_cwe", None)),
        *((YARN, "none", task) for task in ("ruler_vt", None)),
        (YARN, "rerope", None),
    ]
    one, together = told["rerope", "none", "ruler_vt"], told["rerope", "none", None]
    assert (one["difference"], one["better"], one["worse"], one["n"]) == (pytest.approx(7 / 20), 7, 0, 20)
    assert (one["p"], one["sign_p"]) == (pytest.approx(2 / 2**7), pytest.approx(2 / 2**7))
    assert (together["difference"], together["n"], together["tasks"]) == (pytest.approx(7 / 40), 40, 2)
    assert told[YARN, "rerope", None]["difference"] == pytest.approx(13 / 20)
    assert "+35.0 [+5.0, +59.2], 7:0 p 0.016 |" in "\n".join(page._ruler_differences(document))


def test_a_cell_of_fewer_samples_says_how_many() -> None:
    cells = [
        {"method": method, "task": "passkey", "length": LONG, "scores": scores}
        for method, scores in (("none", [1.0] * 20), (YARN, [1.0] * 9), ("yarn:factor=2", [1.0] * 9))
    ]
    told = page._by_length({"answers": cells, "train_length": LONG // 2}, "passkey")
    assert "| method, of 20 |" in told
    assert "| `none` | 100 (84-100) |" in told
    assert told.count("100 (70-100) of 9") == 2


def test_a_mean_over_tasks_that_never_differ_has_an_interval() -> None:
    assert page._mean_of_tasks([[0.0] * 20] * 13) == "0 (0-1)"


def test_a_mean_over_tasks_has_wilsons_interval_of_samples_that_tell_as_much() -> None:
    # 0.75 is as uncertain as from 0.1875 / (0.25 / 19 / 4) = 57 samples, whose interval is 62.4 to 84.4
    assert page._mean_of_tasks([[0.0, 1.0] * 10, [1.0] * 20]) == "75 (62-84)"


def test_a_mean_over_tasks_stays_between_0_and_100() -> None:
    wrong_once = [[1.0] * 10] * 12 + [[1.0] * 9 + [0.0]]
    assert page._mean_of_tasks(wrong_once) == "99 (96-100)"
    assert page._mean_of_tasks([[1 - score for score in own] for own in wrong_once]) == "1 (0-4)"
