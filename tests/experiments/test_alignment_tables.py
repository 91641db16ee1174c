"""Question answering, code and language modelling by length, and the page of all, on a tiny T5 that reads bytes."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel

import lengthwise as lw
from experiments._lib.likelihood_cells import Cells
from experiments.attention_alignment import (
    arguments,
    by_place,
    code,
    code_outcome,
    contenders,
    figures,
    figures_page,
    language_modelling,
    paper,
    paper_code,
    paper_questions,
    questions,
    summary,
    verdicts,
)
from experiments.attention_alignment.facts import short_name
from experiments.attention_alignment.likelihoods import FOLDER, Likelihoods, begun, measured_as
from experiments.attention_alignment.paired import holm, paired_means
from experiments.attention_alignment.results import Results
from lengthwise.analysis.records import ANALYSIS, read_analysis
from lengthwise.evaluation.hedge import mixed_nll
from lengthwise.records import Record
from tests.helpers.answering import answering, saved

TRAIN, SOLVED = 512, (700, 2600)
METHODS = ("none", "truncate", "pmax-model", "hedge-pmax-model")
CODE = Path(lw.__file__).parent / "tasks"


def options(kind: Any, model: str, out: Path, **changes: Any) -> Any:
    given = {
        "calibrate": SOLVED,
        "samples": 2,
        "methods": METHODS,
        "device": "cpu",
        "batch_tokens": 8192,
        "command": "as typed",
    }
    return kind(**{"out": out, "model": model, **given, **changes})


def asked_questions(model: str, out: Path, **changes: Any) -> questions.Options:
    return options(questions.Options, model, out, **{"documents": (10,), **changes})


def asked_code(model: str, out: Path, **changes: Any) -> code.Options:
    return options(code.Options, model, out, **{"files": CODE, "buckets": (1,), "key_lengths": (700,), **changes})


def asked_text(model: str, out: Path, **changes: Any) -> language_modelling.Options:
    return options(language_modelling.Options, model, out, **{"lengths": (700,), "continuation": 8, **changes})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(answering("t5", n_positions=TRAIN), tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def finished(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    questions.questions(asked_questions(model, out))
    code.code(asked_code(model, out))
    language_modelling.language_modelling(asked_text(model, out))
    return out


@pytest.fixture(scope="module")
def drawn(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("drawn")
    figures.figures(options(figures.Options, model, out, lengths=(TRAIN, 640), texts=("line",)))
    return figures.folder_of(out, "line")


def test_the_papers_numbers_agree_with_one_another() -> None:
    """Table 5 prints means and gains of Table 14; the log law's temperature is ln of the training length over ln of another."""
    printed = {("Flan-T5-Large", "none"): (52.4, 43.3, 38.7), ("Flan-T5-Large", "pmax"): (53.1, 44.2, 40.0)}
    for (name, method), means in printed.items():
        assert [round(paper_questions.mean(name, method, n), 1) for n in (10, 20, 30)] == list(means)
    gains = [round(one, 1) for one in paper_questions.gains("Flan-T5-Large", 30)]
    # As printed, but for the second, which is printed as 1.5
    assert gains == [-1.8, 2.5, 3.0, 2.4, 2.0, 1.9, -0.9]
    positions = paper_questions.POSITIONS.items()
    assert all(len(row[n]) == len(places) for row in paper_questions.TABLE_14.values() for n, places in positions)
    for row, lengths, train in (
        (paper_questions.TABLE_10["any", "log"], paper_questions.TABLE_10_TOKENS.values(), 512),
        (paper.TABLE_8["any", "log"], paper.TABLE_3_LENGTHS, 512),
        (paper_code.TABLE_11["log"], paper_code.TABLE_11_LENGTHS, 768),
    ):
        assert row == pytest.approx([math.log(train) / math.log(n) for n in lengths], abs=0.0051)
    for table in (paper_code.TABLE_12, paper_code.TABLE_13):
        assert {len(row) for row in table.values()} == {len(paper_code.BUCKETS)}


def test_paired_means_are_students() -> None:
    one, other = [0.2, 0.9, 0.5, 0.4, 1.0], [0.1, 0.7, 0.6, 0.1, 0.5]
    expected = ttest_rel(one, other)
    found = paired_means(dict(enumerate(one)), dict(enumerate(other)))
    assert found is not None
    assert (found.n, found.better, found.worse) == (5, 4, 1)
    assert found.difference == pytest.approx(np.mean(one) - np.mean(other))
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert found.p == pytest.approx(expected.pvalue)
    same = paired_means({0: 0.3, 1: 0.4}, {0: 0.3, 1: 0.4})
    assert same is not None
    # Two that never differ, by hand: 1.96 / (2 + 2)
    assert (same.low, same.high, same.p) == (pytest.approx(-0.49, abs=1e-3), pytest.approx(0.49, abs=1e-3), 1.0)


RECORD = Record("m", "none", "10-0", "", 1700, 0, 0, 1700, 0.0, "a", "a", 1.0, 0.1)


def answered(method: str, task: str, scores: list[float], length: int = 1700) -> list[Record]:
    base = replace(RECORD, method=method, task=task, length=length, tokens=length)
    return [replace(base, index=at, score=score) for at, score in enumerate(scores)]


def test_means_and_gains_over_places_are_taken_question_by_question() -> None:
    records = [
        *answered("none", "10-0", [1, 1, 0, 0]),
        *answered("none", "10-4", [0, 0, 0, 0]),
        *answered("none", "10-9", [1, 0, 0]),
        *answered("pmax-model", "10-0", [1, 1, 0, 0]),
        *answered("pmax-model", "10-4", [1, 1, 1, 0]),
        *answered("pmax-model", "10-9", [1, 0, 0]),
    ]
    results = Results(records, TRAIN)
    # The fourth question was not asked at the last place
    assert by_place.scores(results, "none", 10) == pytest.approx({0: 2 / 3, 1: 1 / 3, 2: 0.0})
    mean = by_place.mean(results, "none", 10)
    assert mean is not None
    assert (mean.mean, mean.n) == (pytest.approx(1 / 3), 3)
    whole = by_place.gain(results, "pmax-model", "none", 10)
    assert whole is not None
    assert (whole.difference, whole.n) == (pytest.approx(1 / 3), 3)
    at_four = by_place.gain(results, "pmax-model", "none", 10, [4])
    assert at_four is not None
    assert (at_four.n, at_four.better, at_four.worse) == (4, 3, 0)
    middle = by_place.middle_gain(results, "pmax-model", "none", 10)
    assert middle is not None
    assert (middle.difference, middle.n) == (1.0, 3)
    assert (by_place.numbers(results), by_place.tokens(results, 10)) == ([10], 1700)


def test_the_same_questions_are_asked_at_every_place(finished: Path) -> None:
    results = by_place.read_answers(finished, "questions", TRAIN)
    assert sorted(results.tasks) == ["10-0", "10-4", "10-9"]
    length = by_place.tokens(results, 10)
    assert length % questions.ROUND == 0
    asked = {task: {i: r.target for i, r in results.answers("none", task, length).items()} for task in results.tasks}
    assert asked["10-0"] == asked["10-4"] == asked["10-9"]
    assert {record.depth for record in results.answers("none", "10-4", length).values()} == {4 / 9}
    assert all(cell.n == 2 for cell in results.cells.values())
    assert {cell.method for cell in results.cells.values()} == set(METHODS)
    document = json.loads((finished / "questions.json").read_text())
    assert document["missing"] == 0
    assert len(document["gains"]) == 3 * 4
    page = (finished / "questions.md").read_text()
    assert "| Flan-T5-XL, pmax | 65.3 | 57.3 | 60.8 | 61.1 |" in page
    assert "| Flan-T5-XL, pmax | +1.3 | +1.9 | +1.9 | +1.7 |" in page
    assert "| Flan-T5-XL, entropy | 0.75 | 0.65 | 0.55 |" in page
    assert f"## Table 14: 10 documents, about {length:,} tokens" in page
    assert "</svg>" in (finished / "figures" / "questions.svg").read_text()
    assert (finished / "figures" / "questions.png").stat().st_size > 1000


def test_a_hedged_method_is_its_own_contender(finished: Path) -> None:
    config = json.loads((finished / "questions" / "10-0" / "config.json").read_text())
    alignment = json.loads((finished / "pmax-model.json").read_text())
    assert config["methods"]["hedge-pmax-model"] == config["methods"]["pmax-model"] == alignment
    assert [entry["length"] for entry in alignment["temperatures"]] == list(SOLVED)
    known = contenders.contenders(["hedge-pmax-model", "hedge-entropy-head"], SOLVED, TRAIN, finished)
    assert list(known) == ["hedge-pmax-model"]


def test_code_is_completed_by_bucket_and_keys_retrieved(finished: Path) -> None:
    document = json.loads((finished / "code.json").read_text())
    cells = {(cell["task"], cell["method"], cell["length"]): cell for cell in document["cells"]}
    expected = {(task, m, 1500) for task in ("code_completion", "code_completion_es") for m in METHODS}
    assert cells.keys() == expected | {("code_key_retrieval", m, 700) for m in METHODS}
    assert all(1000 <= cell["tokens"] < 2000 for key, cell in cells.items() if key[0] != "code_key_retrieval")
    assert document["missing"] == 0
    assert document["temperatures"]["pmax-model"].keys() == {"700", "1500"}
    page = (finished / "code.md").read_text()
    assert "| paper, truncate | 20.0 |" in page
    assert "| paper, log |  | 85 |" in page
    assert "code of tasks (" in page
    assert [code_outcome.length_of(n) for n in (1, 15)] == [1500, 15500]


def test_finished_experiments_ask_the_model_nothing(finished: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.evaluation.sweep.cells.greedy_answers", None)
    monkeypatch.setattr(language_modelling, "continuation_nll", None)
    monkeypatch.setattr(lw, "calibrate", None)
    before = [path.read_bytes() for path in sorted(finished.rglob("records.jsonl"))]
    questions.questions(asked_questions(model, finished))
    code.code(asked_code(model, finished))
    language_modelling.language_modelling(asked_text(model, finished))
    assert [path.read_bytes() for path in sorted(finished.rglob("records.jsonl"))] == before
    assert len(before) == 3 + 2


def test_samples_alone_can_be_prepared(model: str, tmp_path: Path) -> None:
    questions.questions(asked_questions(model, tmp_path, prepare=True))
    assert sorted(path.name.split("-")[:2] for path in (tmp_path / "samples").iterdir()) == [["10", at] for at in "049"]
    assert [path.name for path in tmp_path.iterdir()] == ["samples"]


def test_questions_of_a_file_have_a_folder_of_their_own(model: str, tmp_path: Path) -> None:
    file = tmp_path / "held_out.jsonl"
    names = [f"Smith {letter}" for letter in "ABCDEFGHIJKLM"]
    gold = [{"title": f"Town {name[-1]}", "text": f"Built by {name}.", "isgold": True} for name in names]
    asked = [{"question": f"who built {one['title']}", "answers": [name]} for name, one in zip(names, gold, strict=True)]
    lines = [{**one, "ctxs": [document]} for one, document in zip(asked, gold, strict=True)]
    file.write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "out"
    questions.questions(asked_questions(model, out, questions=file, methods=("none",), samples=1))
    document = json.loads((out / "questions-held_out.json").read_text())
    assert document["materials"]["questions"].startswith("13 questions of held_out.jsonl (")
    assert (out / "questions-held_out" / "10-9" / "records.jsonl").exists()


def test_truncation_and_hedging_are_computed_from_what_was_measured(finished: Path) -> None:
    found = Likelihoods.read(finished)
    assert set(found.cells) == {(name, n) for name in ("none", "pmax-model") for n in (TRAIN, 700)}
    plain, whole, hedged = (found.nll(name, 700) for name in ("none", "pmax-model", "hedge-pmax-model"))
    end = found.nll("none", TRAIN)
    assert plain is not None
    assert whole is not None
    assert hedged is not None
    assert end is not None
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


@pytest.mark.parametrize(
    ("run", "changes", "message"),
    [
        (questions.questions, {"documents": (11,)}, "--documents are 10, 20, 30, as the paper's, not 11"),
        (questions.questions, {"calibrate": (700,)}, ""),
        (questions.questions, {"calibrate": (700, 900)}, r"was calibrated without length .900.; .* --calibrate 700 2600"),
        (code.code, {"buckets": (0,)}, "a bucket is 1 or more"),
        (code.code, {"files": Path("nowhere")}, "nowhere is no folder"),
        (language_modelling.language_modelling, {"samples": 3}, "was begun with another cases: 2 then, 3 now"),
        (language_modelling.language_modelling, {"lengths": (800,)}, "was begun with another longest: 700 then, 800 now"),
    ],
)
def test_bad_input_is_refused(run: Any, changes: dict[str, Any], message: str, finished: Path, model: str) -> None:
    asked = {questions.questions: asked_questions, code.code: asked_code, language_modelling.language_modelling: asked_text}[
        run
    ]
    if not message:
        # Fewer lengths than were solved for serve as well
        run(asked(model, finished, **changes))
        return
    with pytest.raises(lw.BadInput, match=message):
        run(asked(model, finished, **changes))


def test_the_command_line_says_in_one_line_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for main in (questions.main, code.main, language_modelling.main, figures.main):
        assert main(["no/such/model/here", "--out", str(tmp_path)]) == 2
    assert summary.main([str(tmp_path), "--out", str(tmp_path / "page.md")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[:4] == ["error: no directory no/such/model/here"] * 4
    assert said[4] == f"error: {tmp_path} holds nothing that the scripts here have written; give their --out"


def test_a_verdict_is_certain_or_level() -> None:
    half = [1.0, 0.0] * 20
    records = [
        *answered("truncate", "line", half, 4096),
        *answered("hedge-pmax-layer", "line", [1.0] * 40, 4096),
        *answered("truncate", "topic", half, 4096),
        *answered("hedge-pmax-layer", "topic", [0.0] * 40, 4096),
        *answered("truncate", "code_completion_es", [score * 0.9 for score in half], 4096),
        *answered("hedge-pmax-layer", "code_completion_es", [score * 0.9 for score in half], 4096),
        # At the training length both read the same
        *answered("truncate", "line", half, 512),
        *answered("hedge-pmax-layer", "line", half, 512),
    ]
    found = {one.task: one for one in verdicts.by_scores(Results(records, TRAIN), "hedge-pmax-layer")}
    assert {task: one.said for task, one in found.items()} == {"line": "above", "topic": "below", "code_completion_es": "level"}
    assert found["line"].difference.startswith("+50.0 [+")
    # All twenty that differ are worse, by McNemar; nothing differs in the last
    assert [found[task].p for task in ("topic", "code_completion_es")] == [0.5**20, 0.5]
    said = verdicts.summed_up(list(found.values()), "hedge-pmax-layer")
    counted = "single places (3): 1 above, 1 level, 1 below, each by itself; below after Holm's correction: 1 "
    assert f"{counted}(nearest to it topic at 4,096 (-50.0 [" in said
    assert "adjusted p 2.9e-06)" in said
    assert said.count("topic at 4,096 (-50.0 [") == 3
    (shown, *others) = verdicts.must_show({}, None, list(found.values()), "hedge-pmax-layer")
    assert "1 above, 1 level, 1 below, each by itself; below after Holm's correction: 1 " in shown.measured
    assert shown.holds is False
    assert {(one.measured, one.holds) for one in others} == {("not measured", None)}
    # Three methods at two lengths, two methods among three numbers of documents
    assert len(others) == 3 * 2 + 2 * 3
    (nothing, *_) = verdicts.must_show({}, None, [], "hedge-pmax-layer")
    assert (nothing.measured, nothing.holds) == ("not measured", None)


def test_a_little_below_everywhere_is_seen_in_all_lengths_together() -> None:
    """One point at each of sixteen lengths, the same noise in another order: nowhere certain, together beyond doubt."""
    noise, lengths, records = np.random.default_rng(0), range(1000, 17000, 1000), []
    for length in lengths:
        records += answered("truncate", "code_completion_es", [0.5] * 100, length)
        records += answered(
            "hedge-pmax-model", "code_completion_es", noise.permutation(np.linspace(0.3, 0.68, 100)).tolist(), length
        )
    *alone, together = verdicts.by_scores(Results(records, TRAIN), "hedge-pmax-model")
    assert [one.at for one in (*alone, together)] == [*(f"{length:,}" for length in lengths), "all"]
    assert {one.said for one in alone} == {"level"}
    assert verdicts.remaining([*alone, together]) == [together]
    by_case = np.mean([[r.score for r in records if r.method == "hedge-pmax-model" and r.length == n] for n in lengths], 0)
    assert together.n == 100
    assert together.p == pytest.approx(float(ttest_rel(by_case, [0.5] * 100, alternative="less").pvalue), rel=1e-6)
    assert "code_completion_es at all (-" in verdicts.summed_up([*alone, together], "hedge-pmax-model")


def test_a_sample_that_is_missing_at_one_length_counts_at_none_together() -> None:
    records = [*answered("truncate", "line", [1.0] * 8, 4096), *answered("truncate", "line", [1.0] * 8, 8192)]
    records += [*answered("log", "line", [1.0] * 8, 4096), *answered("log", "line", [0.0] * 5, 8192)]
    assert [(one.at, one.n) for one in verdicts.by_scores(Results(records, TRAIN), "log")] == [
        ("4,096", 8),
        ("8,192", 5),
        ("all", 5),
    ]


@pytest.mark.parametrize(
    ("model", "name"),
    [("embedded", "embedded"), ("runs/larger/export", "larger"), ("google/flan-t5-xl", "flan-t5-xl"), ("export", "export")],
)
def test_a_model_is_called_by_what_tells_it_apart(model: str, name: str) -> None:
    assert short_name(model) == name


def verdict(said: str, p: float, length: int | None = 4096) -> verdicts.Verdict:
    return verdicts.Verdict("line", length, "-1 points", said, 100, p)


def test_never_below_is_judged_by_all_places_together() -> None:
    """Places above do not excuse one below, and one of many level places may be below by chance."""

    def holds(*places: verdicts.Verdict) -> bool | None:
        return verdicts.must_show({}, None, places, "hedge-pmax-model")[0].holds

    assert holds(verdict("below", 0.02)) is False
    assert holds(verdict("below", 0.02), *[verdict("level", 0.5)] * 29) is True
    assert holds(verdict("below", 0.0008), *[verdict("level", 0.5)] * 29) is False
    assert holds(*[verdict("below", 1e-5)] * 2, *[verdict("above", 1.0)] * 100) is False
    # Once the smaller is certain, the other stands alone; among three it does not
    two = [verdict("below", p) for p in (0.02, 0.001)]
    assert verdicts.remaining(two) == two
    assert verdicts.remaining([*two, verdict("level", 0.5)]) == two[1:]
    # A task at all its lengths is judged among tasks: a hundred single places do not hide it
    whole = verdict("below", 0.0017, None)
    assert holds(whole, *[verdict("level", 0.5, None)] * 11, *[verdict("level", 0.5)] * 100) is False
    assert holds(replace(whole, length=4096), *[verdict("level", 0.5, None)] * 11, *[verdict("level", 0.5)] * 100) is True
    # By hand: 3 x 0.01, 2 x 0.02, and 0.03 raised to what stands before it
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])


def test_chance_alone_rarely_makes_a_place_remain_below() -> None:
    """Of thirty level places some is below by itself every other time, and after the correction one time in forty."""
    noise, alone, together = np.random.default_rng(0), 0, 0
    for _ in range(100):
        scores = noise.normal(size=(30, 40)) / 10
        pairs = [paired_means(dict(enumerate(row)), dict.fromkeys(range(40), 0.0)) for row in scores.tolist()]
        places = [verdict("below" if one.high < 0 else "level", one.p_below) for one in pairs if one is not None]
        alone += any(one.said == "below" for one in places)
        together += bool(verdicts.remaining(places))
    assert alone > 40
    assert together <= 7


def test_gains_that_were_not_measured_are_told_of() -> None:
    plain = [record for at in (0, 4, 9) for record in answered("none", f"10-{at}", [1, 0])]
    aligned = [replace(record, method="pmax-model", score=1.0) for record in plain]
    shown = verdicts.must_show({"questions": Results([*plain, *aligned], TRAIN)}, None, [], "hedge-pmax-model")
    gains = {one.claim.split(":")[0]: one.measured for one in shown if "documents" in one.claim}
    assert len(gains) == 3 * 2
    assert gains["questions, 10 documents, pmax-model - none"].startswith("+50.0 [")
    assert gains["questions, 10 documents, hedge-pmax-model - none"] == "not measured"
    assert gains["questions, 30 documents, pmax-model - none"] == "not measured"


def test_perplexity_far_beyond_is_held_against_that_at_the_training_length(tmp_path: Path) -> None:
    settings = {"model": {}, "settings": {"train_length": TRAIN}, "made_with": {"device": "cpu"}}
    begun(tmp_path, settings)
    cells = Cells(tmp_path / FOLDER)
    spread = 0.1 * torch.linspace(-1, 1, 16)[:, None].expand(-1, 4)
    for name, far in (("none", 4.0), ("pmax-layer", 2.1), ("pmax-model", 2.3)):
        for length, nll in ((512, 2.0), (8192, far)):
            cells.once(name, name, length, lambda nll=nll: (spread + nll, 0.0)).make()
    likelihoods = Likelihoods.read(tmp_path)
    found = verdicts.by_likelihood(likelihoods, "pmax-layer")
    assert [(one.length, one.said) for one in found] == [(8192, "below")]
    assert verdicts.remaining(found) == found
    # Even hedged: four tokens cost 8 + ln(2 / (1 + e^-0.4)) = 8.18 nats, and from the end alone 8
    assert [one.said for one in verdicts.by_likelihood(likelihoods, "hedge-pmax-layer")] == ["below"]
    shown = {
        one.claim.split(":")[0] + str(one.claim.count("8,192")): one
        for one in verdicts.must_show({}, likelihoods, found, "pmax-layer")
    }
    assert shown["language modelling, pmax-layer1"].measured == "1.105 [1.105, 1.105]"
    assert shown["language modelling, pmax-layer1"].holds is True
    assert shown["language modelling, none1"].measured == "7.389 [7.389, 7.389]"
    assert shown["language modelling, none1"].holds is None
    assert shown["language modelling, pmax-layer0"].measured == "not measured"
    other = shown["language modelling, pmax-model (unhedged, not the advised one)1"]
    assert (other.measured, other.holds) == ("1.35 [1.35, 1.35]", False)
    own = verdicts.must_show({}, likelihoods, [], "pmax-model")
    assert not any("not the advised" in one.claim for one in own)
    assert len({one.claim for one in own}) == len(own)


def test_p_values_of_perplexity_are_students_over_cases(tmp_path: Path) -> None:
    begun(tmp_path, {"model": {}, "settings": {"train_length": TRAIN}, "made_with": {"device": "cpu"}})
    end, whole = torch.randn(2, 12, 4, generator=torch.Generator().manual_seed(0))
    for name, length, nll in (("none", TRAIN, end), ("log", 8192, whole)):
        Cells(tmp_path / FOLDER).once(name, name, length, lambda nll=nll: (nll, 0.0)).make()
    (found,) = verdicts.by_likelihood(Likelihoods.read(tmp_path), "log")
    expected = ttest_rel(whole.mean(1), end.mean(1), alternative="greater")
    assert found.p == pytest.approx(float(expected.pvalue), rel=1e-4)
    # Two lengths together: the mean of both, case by case
    Cells(tmp_path / FOLDER).once("log", "log", 15000, lambda: (whole.flip(0) + 0.1, 0.0)).make()
    *_, together = verdicts.by_likelihood(Likelihoods.read(tmp_path), "log")
    both = (whole + whole.flip(0) + 0.1).mean(1) / 2
    assert (together.at, together.n) == ("all", 12)
    assert together.p == pytest.approx(float(ttest_rel(both, end.mean(1), alternative="greater").pvalue), rel=1e-4)
    assert together.difference.startswith(f"{float((both - end.mean(1)).mean().exp()):.4g} [")


def test_one_page_tells_of_everything(finished: Path, drawn: Path, tmp_path: Path) -> None:
    shutil.copytree(drawn, figures.folder_of(finished, "line"))
    file = tmp_path / "results" / "README.md"
    page = summary.summary(finished, file, "hedge-pmax-model")
    assert file.read_text() == page
    assert page.count("\n# ") == 0
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings[0] == "## Verdicts"
    assert len(headings) == 8
    # Three places of one document count and all of them, two scores of one bucket, keys, and language modelling
    assert "**hedge-pmax-model against truncation, tasks at all their lengths (1): " in page
    assert "; single places (7): " in page
    assert "Not measured yet: `python -m experiments.attention_alignment.retrieval MODEL --out OUT`." in page
    document = json.loads((tmp_path / "results" / "README.json").read_text())
    assert len(document["verdicts"]) == 8
    assert {one["task"] for one in document["verdicts"]} == {
        "language modelling",
        "code_completion",
        "code_completion_es",
        "code_key_retrieval",
        "questions 10 documents",
        *(f"questions 10-{at}" for at in (0, 4, 9)),
    }
    links = [line.split("](")[1].split(")")[0] for line in page.splitlines() if "](figures/" in line]
    assert len(links) == 1 + 2
    assert all((tmp_path / "results" / link).exists() for link in links)
    assert page.count("not drawn yet") == len(figures_page.FIGURES) - 2
    assert "| hedge-pmax-model - truncate | it is | p | samples |" in page
    # What the paper prints for lines at its longest, of three models
    assert "680 lines (Table 9): pmax 0.7 to 0.75, entropy 0.5 to 0.55, log 0.65" in page


def test_a_page_tells_of_questions_that_are_still_being_asked(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(finished, folder)
    (folder / "questions.json").unlink()
    page = summary.summary(folder, tmp_path / "README.md", "hedge-pmax-model")
    assert "The page is not written yet: `python -m experiments.attention_alignment.questions MODEL --out OUT`." in page
    assert "; single places (7): " in page


def test_figures_add_new_lengths_and_measure_nothing_for_a_page(
    model: str, drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(*lengths: int, **changes: Any) -> figures.Options:
        return options(figures.Options, model, tmp_path, lengths=lengths, texts=("line",), **changes)

    for idle in ({"page": True}, {"prepare": True}):
        figures.figures(call(TRAIN, 640, **idle))
    assert not any(tmp_path.iterdir())
    folder = figures.folder_of(tmp_path, "line")
    shutil.copytree(drawn, folder)
    figures.figures(call(TRAIN, 700))
    assert [one.length for one in read_analysis(folder).lengths] == [TRAIN, 640, 700]
    assert "| 700 |" in (folder / figures.LAST).read_text()
    monkeypatch.setattr(lw, "analyse", None)
    figures.figures(call(TRAIN, 640, 700))
    # Stopped when the last length was measured and not yet drawn
    os.utime(folder / figures.LAST, ns=(0, 0))
    with pytest.raises(TypeError):
        figures.figures(call(TRAIN, 640, 700))


def test_temperatures_that_are_not_to_be_trusted_are_told_of_by_text(drawn: Path, tmp_path: Path) -> None:
    folder = figures.folder_of(tmp_path, "line")
    shutil.copytree(drawn, folder)
    analysis = read_analysis(folder)
    first, last = (replace(one, why={}) for one in analysis.temperatures)
    doubted = replace(first, why={"proposition_1": "these logits are not as Gaussian as it assumes"})
    for rows, told in (((first, last), False), ((doubted, last), True)):
        (folder / ANALYSIS).write_text(json.dumps(replace(analysis, temperatures=rows).to_json()))
        page = "\n".join(figures_page.sections(tmp_path, tmp_path))
        assert (figures_page.WANTING in page) is told
        assert (r"- line, 512 tokens, Proposition 1 (P\_max): these logits are not as Gaussian as it assumes." in page) is told
    # One that was only begun has nothing to show yet
    (folder / figures.LAST).unlink()
    (folder / ANALYSIS).write_text(json.dumps(replace(analysis, lengths=(), temperatures=()).to_json()))
    assert figures_page.sections(tmp_path, tmp_path)[0].startswith("Not drawn yet")


def test_lengths_beyond_the_usual_ones_are_solved_for_themselves(tmp_path: Path) -> None:
    usual = arguments.SOLVED
    assert language_modelling.Options(tmp_path).solved_at == code.Options(tmp_path).solved_at == usual
    assert language_modelling.Options(tmp_path, lengths=(1000, 20000)).solved_at == (*usual, 20000)
    assert language_modelling.Options(tmp_path, lengths=(20000,), calibrate=(1024,)).solved_at == (1024,)
    assert code.Options(tmp_path, buckets=(1, 17), key_lengths=(32768,)).solved_at == (*usual, 17500, 32768)


def test_language_modelling_hedges_any_spec(model: str, tmp_path: Path) -> None:
    call = [model, "--method", "hedge+log", "--length", 700, "--cases", 2, "--continuation", 8, "--out", tmp_path]
    assert language_modelling.main([*map(str, call), "--device", "cpu"]) == 0
    found = Likelihoods.read(tmp_path)
    assert set(found.cells) == {(name, n) for name in ("none", "log") for n in (TRAIN, 700)}
    whole, end, hedged = found.nll("log", 700), found.nll("none", TRAIN), found.nll("hedge+log", 700)
    assert whole is not None
    assert end is not None
    assert hedged is not None
    assert torch.equal(hedged, mixed_nll(whole, end))
    assert "| hedge+log | " in (tmp_path / "language_modelling.md").read_text()
    assert json.loads((tmp_path / "language_modelling.json").read_text())["missing"] == 0
    hedges = {"hedge": "none", "hedge+log": "log", "hedge-pmax-model": "pmax-model", "log": "log"}
    assert {name: contenders.behind(name) for name in hedges} == hedges
    with pytest.raises(lw.BadInput, match=r"hedge\+truncate: a hedge mixes truncation in"):
        measured_as(["hedge+truncate"])
