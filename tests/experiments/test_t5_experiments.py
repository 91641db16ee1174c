"""Question answering, code and language modelling by length, and the page of all, on a tiny T5 that reads bytes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel

import lengthwise as lw
from experiments._lib import command
from experiments._lib.gains import gains, pmax_over
from experiments._lib.likelihood_cells import FOLDER, Cells, Likelihoods, measured_as
from experiments._lib.measure import Answers
from experiments._lib.paired import holm, p_of, paired
from experiments._lib.results import kept_settings
from experiments.against_truncation import run as against_truncation
from experiments.code import run as code
from experiments.language_modelling import run as language_modelling
from experiments.questions import run as questions
from experiments.questions.lost_in_the_middle import Passages, reworded, with_retrieved
from experiments.retrieval import page as retrieval_page
from experiments.retrieval import run as retrieval
from lengthwise.common.text import shipped_prose
from lengthwise.errors import BadInput
from lengthwise.records import Record
from lengthwise.tasks.material.documents import Document, Question
from lengthwise.tasks.multi_document_qa import at_position
from tests.helpers.answering import TRAIN_LENGTH, answering, saved

# Whole runs, before a release
pytestmark = pytest.mark.sweep

TRAIN, SOLVED = 512, (2000,)
METHODS = ("none", "truncate", "pmax-model", "hedge-pmax-model")
CODE = Path(lw.__file__).parent / "tasks"


def options(kind: Any, model: str, out: Path, **own: Any) -> Any:
    given = {"calibrate": SOLVED, "samples": 2, "methods": METHODS, "device": "cpu", "batch_tokens": 8192}
    return kind(out=out, model=model, command="as typed", **given, **own)


def run_all(model: str, out: Path) -> None:
    questions.questions(options(questions.Options, model, out, documents=(10,)))
    code.code(options(code.Options, model, out, files=CODE, buckets=(1,), key_lengths=(700,)))
    language_modelling.language_modelling(options(language_modelling.Options, model, out, lengths=(700,), continuation=8))


@pytest.fixture(scope="module")
def finished(byte_t5: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    run_all(byte_t5, out)
    return out


def test_paired_differences_follow_the_samples_on_which_two_methods_differ() -> None:
    ours, theirs = [1.0] * 8 + [0.0] * 2 + [1.0] * 10, [0.0] * 8 + [1.0] * 2 + [1.0] * 10
    found = paired(dict(enumerate(ours)), dict(enumerate(theirs)))
    assert (found.n, found.better, found.worse, found.difference) == (20, 8, 2, 0.3)
    # Two sides of a fair coin's 10 tosses: 2 (1 + 10 + 45) / 2^10
    assert found.p == pytest.approx(0.109375)
    # Fay and Lumbard's interval holds 0, as p says
    assert (found.low, found.high) == pytest.approx((-0.0571, 0.5908), abs=1e-4)
    same = paired({0: 1.0, 1: 0.0}, {0: 1.0, 1: 0.0, 2: 0.0})
    assert (same.n, same.p) == (2, 1.0)
    assert same.low < 0 < same.high
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_paired_scores_of_which_most_differ_have_students_interval() -> None:
    one, other = [0.2, 0.9, 0.5, 0.4, 1.0], [0.1, 0.7, 0.6, 0.1, 0.5]
    expected = ttest_rel(one, other)
    found = paired(dict(enumerate(one)), dict(enumerate(other)))
    assert (found.n, found.better, found.worse) == (5, 4, 1)
    assert found.difference == pytest.approx(np.mean(one) - np.mean(other))
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert found.p == pytest.approx(expected.pvalue)
    same = paired({0: 0.3, 1: 0.4}, {0: 0.3, 1: 0.4})
    # Two that never differ, by hand: 1 - sqrt 0.025
    assert (same.low, same.high, same.p) == (pytest.approx(-0.8419, abs=1e-4), pytest.approx(0.8419, abs=1e-4), 1.0)
    # All differ by as much: the interval and p agree, though rounding lets 0.8 - 0.6 and 0.6 - 0.4 differ
    for n, step, above in ((2, 0.2, False), (100, 0.2, True), (3, 0.9, True)):
        alike = paired({at: 0.4 + 0.2 * (at % 2) + step for at in range(n)}, {at: 0.4 + 0.2 * (at % 2) for at in range(n)})
        assert (alike.low > 0) == (alike.p < 0.05) == above
    # Four of a hundred at one of two lengths: the exact test's 2 / 2^4, which Student's t would call 0.045
    few = paired({at: 0.5 * (at < 4) for at in range(100)}, dict.fromkeys(range(100), 0.0))
    assert few.p == pytest.approx(0.125)
    assert few.low < 0 < few.high


RECORD = Record("m", "none", "10-0", "", 1700, 0, 0, 1700, 0.0, "a", "a", 1.0, 0.1)


def answered(method: str, task: str, scores: list[float], length: int = 1700) -> list[Record]:
    base = replace(RECORD, method=method, task=task, length=length, tokens=length)
    return [replace(base, index=at, score=score) for at, score in enumerate(scores)]


def test_scopes_are_compared_on_the_same_samples() -> None:
    records = [
        record
        for length in (4096, 15000)
        for scope, right in (("model", 60), ("layer", 85), ("head", 62))
        for record in answered(f"pmax-{scope}", "line", [float(at < right) for at in range(100)], length)
    ]
    compared = retrieval.scopes(Answers(records, 512), (4096, 15000))
    assert [(row["task"], row["lengths"]) for row in compared] == [("line", [4096]), ("line", [15000]), ("line", [4096, 15000])]
    pair = compared[-1]["against"]["layer - model"]
    # Samples count once, however many lengths they are asked at
    assert (pair["n"], pair["better"], pair["worse"]) == (100, 25, 0)
    document = {"scopes": compared, "samples": 100}
    assert "independent" not in retrieval_page._scopes(document)[1]
    assert "independent" in retrieval_page._scopes({**document, "samples": 50})[1]
    # While head is still answering, all are compared on what it has answered
    fewer = [record for record in records if record.method != "pmax-head" or record.index < 60]
    assert retrieval.scopes(Answers(fewer, 512), (4096, 15000))[0]["means"] == {"model": 1.0, "layer": 1.0, "head": 1.0}
    # A length that only one scope has answered is not said to be compared
    half = [record for record in records if record.method == "pmax-model" or record.length == 4096]
    assert [row["lengths"] for row in retrieval.scopes(Answers(half, 512), (4096, 15000))] == [[4096]]


def test_scopes_are_compared_on_official_cases_of_each_file_and_of_all() -> None:
    files = (("line", "200_lines.jsonl", 4251), ("line", "400_lines.jsonl", 8378), ("topic", "5_topics.jsonl", 3853))
    records = [
        replace(record, data=data)
        for task, data, length in files
        for scope, right in (("model", 40), ("head", 30))
        for record in answered(f"entropy-{scope}", task, [float(at < right) for at in range(50)], length)
    ]
    generated = [record for scope in ("model", "head") for record in answered(f"entropy-{scope}", "line", [1.0, 0.0], 512)]
    compared = retrieval.scopes(Answers([*generated, *records], 512), (512,))
    assert [(row["task"], row["lengths"]) for row in compared] == [
        ("line", [512]),
        ("200_lines", [4251]),
        ("400_lines", [8378]),
        ("5_topics", [3853]),
        ("official lines", [4251, 8378]),
        ("official cases", [3853, 4251, 8378]),
    ]
    # The first cases of two files are not one case
    pairs = [row["against"]["head - model"] for row in compared]
    assert [(pair["n"], pair["better"], pair["worse"]) for pair in pairs[3:]] == [(50, 0, 10), (100, 0, 20), (150, 0, 30)]
    shown = retrieval_page._scopes({"scopes": compared, "samples": 50})
    assert "independent" not in shown[1]
    assert "entropy, official cases, 3,853 and 4,251 and 8,378" in shown[2]
    # One file is all there is of its task, and of all
    one = [record for record in records if record.task == "topic"]
    assert [row["task"] for row in retrieval.scopes(Answers([*generated, *one], 512), (512,))] == ["line", "5_topics"]


def test_pmax_is_held_against_every_other_method_on_the_same_samples() -> None:
    right = {"none": [0, 0, 1], "pmax-model": [1, 1, 0], "log": [1, 0]}
    answers = Answers([record for method, scores in right.items() for record in answered(method, "line", scores)], TRAIN)
    found = {(row["method"], row["over"]): (row["n"], row["better"], row["worse"]) for row in gains(answers)}
    assert found == {("pmax-model", "none"): (3, 2, 1), ("log", "none"): (2, 1, 0)}
    (row,) = pmax_over(answers)
    assert (row["over"], row["n"], row["better"], row["worse"], row["difference"]) == ("log", 2, 1, 0, 0.5)


def test_lengths_beyond_training_are_compared_together_on_samples_that_have_them_all() -> None:
    right = {512: ([1, 1, 1], [0, 0, 0]), 1024: ([1, 1, 1], [0, 1, 1]), 2048: ([1, 0], [0, 0])}
    records = [
        replace(record, length=length)
        for length, both in right.items()
        for method, scores in zip(("pmax-model", "none"), both, strict=True)
        for record in answered(method, "line", scores)
    ]
    rows = {row["length"]: row for row in gains(Answers(records, TRAIN))}
    assert list(rows) == [512, 1024, 2048, None]
    assert (rows[None]["n"], rows[None]["difference"]) == (2, 0.5)


def test_means_and_gains_over_places_are_taken_question_by_question() -> None:
    records = [
        *answered("none", "10-0", [1, 1, 0, 0]),
        *answered("none", "10-4", [0, 0, 0, 0]),
        *answered("none", "10-9", [1, 0, 0]),
        *answered("pmax-model", "10-0", [1, 1, 0, 0]),
        *answered("pmax-model", "10-4", [1, 1, 1, 0]),
        *answered("pmax-model", "10-9", [1, 0, 0]),
    ]
    answers = Answers(records, TRAIN)
    # The fourth question was not asked at the last place
    assert questions.scores(answers, "none", 10) == pytest.approx({0: 2 / 3, 1: 1 / 3, 2: 0.0})
    over = questions.over_places(answers)
    assert [row["mean"] for row in over["means"]] == pytest.approx([100 / 3, 200 / 3])
    assert [row["difference"] for row in over["middle"]] == [100.0]
    whole = questions.gain(answers, "pmax-model", 10)
    assert (whole.difference, whole.n) == (pytest.approx(1 / 3), 3)
    at_four = questions.gain(answers, "pmax-model", 10, [4])
    assert (at_four.n, at_four.better, at_four.worse) == (4, 3, 0)
    middle = questions.middle_gain(answers, "pmax-model", 10)
    assert (middle.difference, middle.n) == (1.0, 3)
    assert questions.numbers(answers) == [10]
    other = Answers([*records, *(r for at in (0, 4, 9) for r in answered("log", f"10-{at}", [1, 0]))], TRAIN)
    (row,) = questions.pmax_over(other)
    assert (row["over"], row["documents"], row["n"], row["difference"]) == ("log", 10, 2, pytest.approx(1 / 3))


def test_the_same_questions_are_asked_at_every_place(finished: Path) -> None:
    answers = Answers.read(finished, TRAIN, questions.runs_of("questions"))
    assert sorted(answers.tasks) == ["10-0", "10-4", "10-9"]
    (length,) = answers.lengths
    assert length % questions.ROUND == 0
    asked = {
        task: {r.index: r.target for r in answers.records if (r.method, r.task) == ("none", task)} for task in answers.tasks
    }
    assert asked["10-0"] == asked["10-4"] == asked["10-9"]
    assert {record.depth for record in answers.records if record.task == "10-4"} == {4 / 9}
    assert all(cell.n == 2 for cell in answers.cells)
    assert {cell.method for cell in answers.cells} == set(METHODS)
    document = json.loads((finished / "questions.json").read_text())
    assert document["missing"] == 0
    assert len(document["gains"]) == 3 * 4


def test_code_is_completed_by_bucket_and_keys_retrieved(finished: Path) -> None:
    document = json.loads((finished / "code.json").read_text())
    cells = {(cell["task"], cell["method"], cell["length"]): cell for cell in document["cells"]}
    expected = {(task, m, 1500) for task in ("code_completion", "code_completion_es") for m in METHODS}
    assert cells.keys() == expected | {("code_key_retrieval", m, 700) for m in METHODS}
    assert all(1000 <= cell["tokens"] < 2000 for key, cell in cells.items() if key[0] != "code_key_retrieval")
    assert document["missing"] == 0
    assert document["temperatures"]["pmax-model"].keys() == {"700", "1500"}
    assert [code.length_of(n) for n in (1, 15)] == [1500, 15500]


def test_finished_experiments_ask_the_model_nothing(finished: Path, byte_t5: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.evaluation.sweep.cells.greedy_answers", None)
    monkeypatch.setattr(language_modelling, "continuation_nll", None)
    monkeypatch.setattr(lw, "calibrate", None)
    before = [path.read_bytes() for path in sorted(finished.rglob("records.jsonl"))]
    run_all(byte_t5, finished)
    assert [path.read_bytes() for path in sorted(finished.rglob("records.jsonl"))] == before
    assert len(before) == 3 + 2


def test_truncation_and_hedging_are_computed_from_what_was_measured(finished: Path) -> None:
    found = Likelihoods.read(finished)
    assert set(found.cells) == {(name, n) for name in ("none", "pmax-model") for n in (TRAIN, 700)}
    whole, hedged = (found.nll(name, 700) for name in ("pmax-model", "hedge-pmax-model"))
    end = found.nll("none", TRAIN)
    assert torch.equal(found.nll("truncate", 700), end)
    for case in range(2):
        sums = [math.fsum(table[case].tolist()) for table in (whole, end)]
        mixed = -math.log(0.5 * math.exp(-sums[0]) + 0.5 * math.exp(-sums[1]))
        assert math.fsum(hedged[case].tolist()) == pytest.approx(mixed, rel=1e-5)
    assert found.nll("log", 700) is None
    document = json.loads((finished / "language_modelling.json").read_text())
    cells = {(cell["method"], cell["length"]): cell for cell in document["cells"]}
    assert cells["hedge-pmax-model", 700]["perplexity"] == pytest.approx(float(hedged.double().mean().exp()))
    assert cells["truncate", 700]["ratio"]["ratio"] == 1.0
    assert document["missing"] == 0
    assert measured_as(["hedge-pmax-layer", "log"]) == ["none", "pmax-layer", "log"]
    assert measured_as(["log"]) == ["log"]


def test_a_verdict_is_certain_or_level() -> None:
    half = [1.0, 0.0] * 20
    # At the training length both read the same
    records = [*answered("truncate", "line", half, TRAIN), *answered("hedge-pmax-layer", "line", half, TRAIN)]
    for task, scores in {"line": [1.0] * 40, "topic": [0.0] * 40, "code_completion_es": half}.items():
        records += [*answered("truncate", task, half, 4096), *answered("hedge-pmax-layer", task, scores, 4096)]
    found = {one.task: one for one in against_truncation.by_scores(Answers(records, TRAIN), "hedge-pmax-layer")}
    assert {task: one.said for task, one in found.items()} == {"line": "above", "topic": "below", "code_completion_es": "level"}
    assert found["line"].difference.startswith("+50.0 [+")
    other = {
        one.task: one.said for one in against_truncation.by_scores(Answers(records, TRAIN), "truncate", "hedge-pmax-layer")
    }
    assert other == {"line": "below", "topic": "above", "code_completion_es": "level"}
    # All twenty that differ are worse, by McNemar; nothing differs in the last
    assert [found[task].p for task in ("topic", "code_completion_es")] == [0.5**20, 0.5]
    counted = "single places (3): 1 above, 1 level, 1 below, each by itself; below after Holm's correction: 1"
    assert against_truncation.counted(list(found.values())).endswith(counted)


def test_a_little_below_everywhere_is_seen_in_all_lengths_together() -> None:
    """One point at each of sixteen lengths, the same noise in another order: nowhere certain, together beyond doubt."""
    noise, lengths, records = np.random.default_rng(0), range(1000, 17000, 1000), []
    for length in lengths:
        records += answered("truncate", "code_completion_es", [0.5] * 100, length)
        records += answered(
            "hedge-pmax-model", "code_completion_es", noise.permutation(np.linspace(0.3, 0.68, 100)).tolist(), length
        )
    *alone, together = against_truncation.by_scores(Answers(records, TRAIN), "hedge-pmax-model")
    assert [one.length for one in (*alone, together)] == [*lengths, None]
    assert {one.said for one in alone} == {"level"}
    assert against_truncation.remaining([*alone, together]) == [together]
    by_case = np.mean([[r.score for r in records if r.method == "hedge-pmax-model" and r.length == n] for n in lengths], 0)
    assert together.n == 100
    assert together.p == pytest.approx(float(ttest_rel(by_case, [0.5] * 100, alternative="less").pvalue), rel=1e-6)


def test_a_sample_that_is_missing_at_one_length_counts_at_none_together() -> None:
    records = [*answered("truncate", "line", [1.0] * 8, 4096), *answered("truncate", "line", [1.0] * 8, 8192)]
    records += [*answered("log", "line", [1.0] * 8, 4096), *answered("log", "line", [0.0] * 5, 8192)]
    found = against_truncation.by_scores(Answers(records, TRAIN), "log")
    assert [(one.length, one.n) for one in found] == [(4096, 8), (8192, 5), (None, 5)]


def test_files_of_longeval_tell_their_task_or_what_is_wrong_with_them(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    for line, task in (('{"topics": []}', "topic"), ('{"lines": []}', "line")):
        file.write_text(f"\n{line}\n")
        assert retrieval._task_of(file) == task
    file.write_text("no JSON\n")
    for wrong in (file, tmp_path / "none.jsonl"):
        with pytest.raises(BadInput, match=wrong.name):
            retrieval._task_of(wrong)


def test_two_methods_are_compared_where_nothing_was_truncated() -> None:
    records = [*answered("none", "3-1", [0.0] * 8), *answered("log", "3-1", [1.0] * 8)]
    for found in (against_truncation.by_scores, against_truncation.by_documents):
        (one,) = found(Answers(records, TRAIN), "log", "none", "questions ")
        assert (one.said, one.n) == ("above", 8), found


def verdict(said: str, p: float, length: int | None = 4096) -> against_truncation.Verdict:
    return against_truncation.Verdict("line", length, "-1 points", said, 100, p)


def test_never_below_is_judged_by_all_places_together() -> None:
    """Places above do not excuse one below, and one of many level places may be below by chance."""

    def holds(*places: against_truncation.Verdict) -> bool | None:
        return not against_truncation.remaining(places)

    assert holds(verdict("below", 0.02)) is False
    assert holds(verdict("below", 0.02), *[verdict("level", 0.5)] * 29) is True
    assert holds(verdict("below", 0.0008), *[verdict("level", 0.5)] * 29) is False
    assert holds(*[verdict("below", 1e-5)] * 2, *[verdict("above", 1.0)] * 100) is False
    # Once the smaller is certain, the other stands alone; among three it does not
    two = [verdict("below", p) for p in (0.02, 0.001)]
    assert against_truncation.remaining(two) == two
    assert against_truncation.remaining([*two, verdict("level", 0.5)]) == two[1:]
    # A task at all its lengths is judged among tasks: a hundred single places do not hide it
    whole = verdict("below", 0.0017, None)
    assert holds(whole, *[verdict("level", 0.5, None)] * 11, *[verdict("level", 0.5)] * 100) is False
    assert holds(replace(whole, length=4096), *[verdict("level", 0.5, None)] * 11, *[verdict("level", 0.5)] * 100) is True
    # By hand: 3 x 0.01, 2 x 0.02, and 0.03 raised to what stands before it
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])


def likelihoods_of(folder: Path, nll: dict[tuple[str, int], torch.Tensor]) -> Likelihoods:
    kept_settings(folder / FOLDER, {"train_length": TRAIN}, made_with={"device": "cpu"})
    for (name, length), values in nll.items():
        Cells(folder / FOLDER).once(name, name, length, lambda values=values: (values, 0.0))
    return Likelihoods.read(folder)


def test_a_higher_perplexity_is_below_even_hedged(tmp_path: Path) -> None:
    spread = 0.1 * torch.linspace(-1, 1, 16)[:, None].expand(-1, 4)
    nll = {("none", TRAIN): 2.0, ("none", 8192): 4.0, ("pmax-layer", TRAIN): 2.0, ("pmax-layer", 8192): 2.1}
    likelihoods = likelihoods_of(tmp_path, {key: spread + level for key, level in nll.items()})
    found = against_truncation.by_likelihood(likelihoods, "pmax-layer")
    assert [(one.length, one.said) for one in found] == [(8192, "below")]
    assert [one.said for one in against_truncation.by_likelihood(likelihoods, "pmax-layer", "none")] == ["above"]
    assert against_truncation.remaining(found) == found
    # Even hedged: four tokens cost 8 + ln(2 / (1 + e^-0.4)) = 8.18 nats, and from the end alone 8
    assert [one.said for one in against_truncation.by_likelihood(likelihoods, "hedge-pmax-layer")] == ["below"]


def test_p_values_of_perplexity_are_students_over_cases(tmp_path: Path) -> None:
    end, whole = torch.randn(2, 12, 4, generator=torch.Generator().manual_seed(0))
    nll = {("none", TRAIN): end, ("log", 8192): whole, ("log", 15000): whole.flip(0) + 0.1}
    found, _, together = against_truncation.by_likelihood(likelihoods_of(tmp_path, nll), "log")
    expected = ttest_rel(whole.mean(1), end.mean(1), alternative="greater")
    assert found.p == pytest.approx(float(expected.pvalue), rel=1e-4)
    # Two lengths together: the mean of both, case by case
    both = (whole + whole.flip(0) + 0.1).mean(1) / 2
    assert (together.length, together.n) == (None, 12)
    assert together.p == pytest.approx(float(ttest_rel(both, end.mean(1), alternative="greater").pvalue), rel=1e-4)
    assert together.difference.startswith(f"{float((both - end.mean(1)).mean().exp()):.4g} [")


def test_every_method_tells_the_same_tokens_at_every_length(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text(shipped_prose()[:4000])
    model = saved(answering("llama"), tmp_path / "model")
    call = [model, "--text", text, "--method", "none", "log", "--length", 320, "--cases", 3, "--continuation", 8, "--out", out]
    typed = [*map(str, call), "--device", "cpu"]
    assert command.main(language_modelling.Options, language_modelling.language_modelling, None, typed) == 0
    document = json.loads((out / "language_modelling.json").read_text())
    cells = {(cell["method"], cell["length"]): cell for cell in document["cells"]}
    # A hedge without a method costs nothing more
    assert [*cells] == [(method, n) for method in ("none", "log", "hedge+none") for n in (TRAIN_LENGTH, 320)]
    for (method, _), cell in cells.items():
        assert cell["perplexity"] == pytest.approx(math.exp(fmean(cell["nll"])))
        assert cell["tokens"] == 3 * 8
        ratio = cell["perplexity"] / cells[method, TRAIN_LENGTH]["perplexity"]
        assert cell["ratio"]["ratio"] == pytest.approx(ratio)
    assert cells["none", TRAIN_LENGTH]["nll"] == pytest.approx(cells["log", TRAIN_LENGTH]["nll"])
    assert cells["none", 320]["nll"] != pytest.approx(cells["log", 320]["nll"], abs=1e-4)
    assert f"| log | {cells['log', TRAIN_LENGTH]['perplexity']:.4g} [" in (out / "language_modelling.md").read_text()


def test_what_is_advised_is_held_against_truncation(finished: Path, tmp_path: Path) -> None:
    typed = [str(finished), "--out", str(tmp_path)]
    assert command.main(against_truncation.Options, against_truncation.against_truncation, None, typed) == 0
    document = json.loads((tmp_path / "against_truncation.json").read_text())
    tasks = {verdict["task"] for verdict in document["verdicts"]}
    assert {"language modelling", "code_completion", "code_key_retrieval", "questions 10-4", "questions 10 documents"} <= tasks


def test_a_p_value_can_be_read_off_an_interval() -> None:
    one, other = [0.2, 0.9, 0.5, 0.4, 1.0], [0.1, 0.7, 0.6, 0.1, 0.5]
    found = paired(dict(enumerate(one)), dict(enumerate(other)))
    assert p_of(found.difference, found.low, found.high, 4) == pytest.approx(ttest_rel(one, other).pvalue)
    assert p_of(-found.difference, -found.high, -found.low, 4) == pytest.approx(found.p)


def test_retrieved_documents_are_those_most_like_the_question_without_an_answer(tokenizer: Any) -> None:
    told = {
        "Gold": "The lighthouse of Orm was built by Ada Lund.",
        "Second": "The lighthouse of Tarn was painted by nobody.",
        "First": "A lighthouse of Orm stands on a cliff, and who built it is disputed.",
        "Answering": "The lighthouse of Orm: Ada Lund built the lighthouse of Orm.",
        "Far": "Bread is made of flour and water.",
    }
    documents = {title: Document(title, text) for title, text in told.items()}
    asked = Question("Who built the lighthouse of Orm?", ("Ada Lund",), documents["Gold"])
    others = [Question("What is bread made of?", ("flour",), documents[title]) for title in ("Far", "Second")]
    (drawn,) = (sample for sample in at_position(tokenizer, 3, 1, 3, 0, [asked, *others]) if sample.target == "Ada Lund")
    passages = Passages.of(list(documents.values()))
    sample = with_retrieved(tokenizer, drawn, 1, passages)
    lines = sample.prompt.split("\n")[1:]
    assert [line.split("(")[1].split(")")[0] for line in lines[:-1]] == ["First", "Gold", "Second"]
    assert lines[-1] == "Question: Who built the lighthouse of Orm? Answer:"
    assert (sample.target, sample.depth, sample.question) == (drawn.target, drawn.depth, drawn.question)
    assert sample.tokens == len(tokenizer(sample.prompt)["input_ids"])
    with pytest.raises(BadInput, match="3 passages do not answer"):
        passages.nearest(asked.text, 4, documents["Gold"].one_line, asked.answers)


def test_the_wording_of_lost_in_the_middle_keeps_documents_and_question(tokenizer: Any) -> None:
    (ours,) = at_position(tokenizer, 3, 1, 1, 0)
    theirs = reworded(tokenizer, ours)
    *documents, question = ours.prompt.split("\n")[1:]
    said = theirs.prompt.split("\n")
    assert said[0].startswith("Write a high-quality answer for the given question")
    assert said[1] == said[5] == ""
    told = [f"Document {number} ({line.split('(Title: ', 1)[1]}" for number, line in enumerate(said[2:5], 1)]
    assert told == documents
    assert said[2].startswith("Document [1](Title: ")
    assert said[6:] == [question.removesuffix(" Answer:"), "Answer:"]
    assert theirs.prompt.endswith(theirs.question)
    assert theirs.target == ours.target
    assert theirs.depth == ours.depth
    assert theirs.tokens == len(tokenizer(theirs.prompt)["input_ids"])
