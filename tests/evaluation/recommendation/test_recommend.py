"""Recommendations with answers that are made up: which method wins, on which questions, and what is said."""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import lengthwise as lw
from lengthwise.calibration.answer_cases import FAR_SEEDS, answer_cases
from lengthwise.common.progress import progress
from lengthwise.errors import BadInput
from lengthwise.evaluation.recommendation.candidates import Calibration
from lengthwise.evaluation.recommendation.exam import FRESH_SEED, QuestionExam
from lengthwise.evaluation.recommendation.steps import Recommendation, _made_for
from lengthwise.methods.recipe import Recipe
from lengthwise.models.anatomy import anatomy_of
from lengthwise.records import Record
from lengthwise.records.locks import claim
from lengthwise.tasks import TASKS
from lengthwise.tasks.material.documents import Question, made_up, write_questions
from tests.conftest import TRAIN_LENGTH, logits, make, tokens

LENGTH = 4 * TRAIN_LENGTH
Score = Callable[[str, int, str], float]  # of a method, a length and a run: the share of questions that are right


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Score], list[tuple[Any, ...]]]:
    """Answers without a model; what is asked goes into the list."""

    def use(score: Score) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []

        def records(self: QuestionExam, run: str, methods: Any, tasks: Any, lengths: Any, samples: int) -> list[Record]:
            calls.append((run, tuple(methods), tuple(lengths), samples))
            seed = self.seed + (FRESH_SEED if run == "confirm" else 0)
            return [
                Record("m", m, t, "", n, i, seed, n, 0.5, "a", "b", float(i % 8 < 8 * score(m, n, run)), 0.001)
                for m in methods for t in tasks for n in lengths for i in range(samples)
            ]  # fmt: skip

        monkeypatch.setattr(QuestionExam, "records", records)
        return calls

    return use


@pytest.fixture
def uncalibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.calibrations", lambda *_: [])


def recommend(tokenizer: Any, name: str = "t5", **options: Any) -> Recipe:
    # So little time that no temperature is calibrated
    return lw.recommend(make(name, 0), tokenizer, show_progress=False, **{"length": LENGTH, "minutes": 1e-6, **options})


def helped_by(best: str) -> Score:
    return lambda method, length, _: 1.0 if method == best or length <= TRAIN_LENGTH else 0.25


def test_what_helps_wins_and_is_confirmed_on_other_questions(
    tokenizer: Any, answering: Any, tmp_path: Path, uncalibrated: None
) -> None:
    calls = answering(helped_by("log"))
    recipe = recommend(tokenizer, tasks=["passkey"], out=tmp_path, minutes=10)
    assert (recipe.method, recipe.parts) == ("log", ("log",))
    assert recipe.says[0].startswith(f"Use log: 100 % of questions at {LENGTH} tokens right")
    assert "Against the plain model, 25 %: +75 points" in " ".join(recipe.says)
    confirmed = [call[1:] for call in calls if call[0] == "confirm" and LENGTH in call[2]]
    asked = ("none", "truncate", "log"), (TRAIN_LENGTH, LENGTH)
    assert confirmed == [(*asked, samples) for samples in (8, 16, 32, 64)]
    short = recommend(tokenizer, tasks=["passkey"], out=tmp_path)
    assert Recipe.of_document(json.loads((tmp_path / "recipe.json").read_text()), "recipe.json") == short


def test_losers_are_asked_no_more(tokenizer: Any, answering: Any, uncalibrated: None) -> None:
    calls = answering(lambda m, n, _: 1.0 if m == "log" or n <= TRAIN_LENGTH else 0.9 if m == "infoscale" else 0.0)
    recommend(tokenizer, tasks=["passkey"], minutes=10)
    raced = [call for call in calls if call[0] == "race" and call[2] == (LENGTH,)]
    rounds = [(call[1], call[3]) for call in raced if {"log", "infoscale"} <= {*call[1]}]
    assert [samples for _, samples in rounds] == [4, 8, 16, 32]
    assert rounds[0][0] == ("none", "truncate", "log", "infoscale")
    assert rounds[-1][0] == ("log", "infoscale")


class SlowMachine:
    """Only answers move its clock; from some second on they take twice as long, beside the work of others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float, loaded: float = math.inf) -> None:
        self.start = self.now = 1000.0
        self.seconds, self.loaded, self.recorded = seconds, loaded, dict[Any, Record]()
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr(QuestionExam, "records", lambda _, *asked: self.records(*asked))
        monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.peak_memory", lambda *_: None)

    @property
    def took(self) -> float:
        return self.now - self.start

    def records(self, run: str, methods: Any, tasks: Any, lengths: Any, samples: int) -> list[Record]:
        """Answers, with a report of progress after each; those that were recorded are there at once."""
        asked = [*itertools.product([run], methods, tasks, lengths, range(samples))]
        with progress("answering", len(asked), shown=False) as tick:
            for key in asked:
                if key not in self.recorded:
                    _, method, task, length, index = key
                    read = TRAIN_LENGTH if method == "truncate" else length
                    seconds = self.seconds * read / LENGTH * (2 if self.took > self.loaded else 1)
                    right = float(length <= TRAIN_LENGTH or method == "log")
                    self.recorded[key] = Record("m", method, task, "", length, index, 0, length, 0.5, "a", "b", right, seconds)
                    self.now += seconds
                    tick(0)
        return [self.recorded[key] for key in asked]


@pytest.mark.parametrize("loaded", [math.inf, 10, 30, 50])
@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.5, 1])
def test_it_takes_no_longer_than_it_may(
    tokenizer: Any, uncalibrated: None, monkeypatch: pytest.MonkeyPatch, seconds: float, loaded: float
) -> None:
    machine = SlowMachine(monkeypatch, seconds, loaded)
    assert recommend(tokenizer, minutes=1).method == "log"
    assert machine.took <= 1.1 * 60


def test_it_says_so_when_the_shortest_recommendation_takes_longer(
    tokenizer: Any, uncalibrated: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = SlowMachine(monkeypatch, 10)
    recipe = lw.recommend(make("t5", 0), tokenizer, LENGTH, minutes=1)
    said = "one answer at 32 tokens takes 2.5 s: even with the fewest questions this will take about 4 minutes, not 1"
    assert capsys.readouterr().err.splitlines()[:2] == ["first answers of the model as it is", said]
    assert machine.took == pytest.approx(4 * 60, rel=0.1)
    assert {cell["n"] for cell in recipe.evidence["fresh"]} == {4}


@pytest.mark.parametrize("law", [0.0, 0.5, 1.0])
def test_fits_to_answers_come_first_where_a_law_does_worse_than_nothing(
    law: float, tokenizer: Any, answering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(lambda m, n, _: 1.0 if n <= TRAIN_LENGTH else law if m == "log" else 0.5)
    tried: list[str] = []
    monkeypatch.setattr(Recommendation, "_calibrate", lambda _, calibration: tried.append(calibration.name))
    recommend(tokenizer, tasks=["passkey"])
    cheapest = ["pmax-layer", "pmax-model", "entropy-model", "answers-model", "answers-head"]
    assert tried == (cheapest[::-1] if law < 0.5 else cheapest)


def test_a_winner_by_chance_is_not_recommended(tokenizer: Any, answering: Any, uncalibrated: None) -> None:
    answering(lambda m, n, run: 1.0 if n <= TRAIN_LENGTH or (m == "log" and run == "race") else 0.5)
    recipe = recommend(tokenizer, tasks=["passkey"], minutes=10)
    assert (recipe.method, recipe.parts) == ("none", ())
    assert "is not helped by anything that was tried" in recipe.says[0]


def test_where_nothing_is_answered_the_method_under_which_answers_are_likeliest_is_confirmed(
    tokenizer: Any, answering: Any, uncalibrated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four questions of the race tell nothing where a method answers one in four."""
    answering(lambda m, n, run: float(n <= TRAIN_LENGTH) or (0.25 if (m, run) == ("infoscale", "confirm") else 0.0))
    nats = {"none": float("nan"), "log": 9.0, "infoscale": 8.0}
    asked: list[str] = []

    def told(_: QuestionExam, methods: dict[str, Any]) -> dict[str, float]:
        asked.extend(methods)
        return nats

    monkeypatch.setattr(QuestionExam, "nats", told)
    recipe = recommend(tokenizer, tasks=["passkey"], minutes=10)
    assert asked == ["none", "log", "infoscale"]
    assert recipe.method == "infoscale"
    assert recipe.evidence["nats"]["log"] == 9.0
    # What one method has right is worth more than any likelihood
    answering(lambda m, n, _: float(n <= TRAIN_LENGTH) or (0.25 if m == "log" else 0.0))
    assert recommend(tokenizer, tasks=["passkey"], minutes=10).method == "log"


def test_nats_are_those_of_right_answers_under_each_method(tokenizer: Any, tmp_path: Path) -> None:
    model, length = make("t5", 0), 2 * LENGTH  # with room for a question
    trial = (model, tokenizer, anatomy_of(model, TRAIN_LENGTH), length, 0, tmp_path, False)
    asked = QuestionExam(*trial, ("passkey",), None, None, "tiny")
    told = asked.nats({"none": "none", "log": ["log"]})
    cases = answer_cases(model, tokenizer, TASKS["passkey"].samples(tokenizer, length, 4, FAR_SEEDS))
    for name, spec in (("none", "none"), ("log", "log")):
        with lw.extend(model, spec, train_length=TRAIN_LENGTH), torch.no_grad():
            assert told[name] == pytest.approx(sum(float(case.loss(model.eval())) for case in cases) / 4)
    assert told["none"] != told["log"]


def test_truncation_and_the_plain_model_can_win(tokenizer: Any, answering: Any) -> None:
    answering(helped_by("truncate"))
    truncating = recommend(tokenizer, tasks=["passkey"])
    assert truncating.says[0].startswith(f"Keep truncating to the last {TRAIN_LENGTH} tokens")
    with pytest.raises(BadInput, match="the recipe for 128 tokens is to keep truncating"):
        lw.extend(make("t5", 0), truncating).__enter__()
    answering(lambda *_: 1.0)
    assert "reads this length already" in recommend(tokenizer, tasks=["passkey"]).says[0]


def test_what_loses_at_the_training_length_is_out(tokenizer: Any, answering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.calibrations", lambda *_: [])
    scores = {"log": (1.0, 0.0), "infoscale": (0.75, 1.0)}
    answering(lambda m, n, _: scores.get(m, (0.25, 1.0))[n <= TRAIN_LENGTH])
    assert recommend(tokenizer, tasks=["passkey"], minutes=10).method == "infoscale"


@pytest.mark.parametrize(
    ("limit", "longest", "said"),
    [
        (1, 2, "At 256 tokens it falls to 25 % (8 questions)."),
        (2, 4, "It still answers 100 % (8 questions) at 256 tokens. At 512 tokens it falls to 25 %"),
        (9, 4, "It still answers 100 % (8 questions) at 256 tokens and 100 % (8 questions) at 512 tokens."),
    ],
)
def test_it_says_where_the_method_stops_working(
    tokenizer: Any, answering: Any, monkeypatch: pytest.MonkeyPatch, limit: int, longest: int, said: str
) -> None:
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.calibrations", lambda *_: [])
    calls = answering(lambda m, n, _: 1.0 if n <= TRAIN_LENGTH or (m == "log" and n <= limit * LENGTH) else 0.25)
    recipe = recommend(tokenizer, tasks=["passkey"], minutes=10)
    asked_at = [2 * LENGTH, 4 * LENGTH][: longest // 2]
    assert [n for call in calls for n in call[2] if n > LENGTH] == asked_at
    assert said in " ".join(recipe.says)
    assert [cell["length"] for cell in recipe.evidence["longer"]] == asked_at


def test_memory_is_told_where_it_is_measured(tokenizer: Any, answering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(helped_by("log"))
    peak = "lengthwise.evaluation.recommendation.steps.peak_memory"
    monkeypatch.setattr(peak, lambda *_: None)
    assert "times as long as the plain model's (0.001 s); memory is not counted on this system." in " ".join(
        recommend(tokenizer, tasks=["passkey"]).says
    )
    monkeypatch.setattr(peak, lambda _, parts, tokens: tokens * 2**20 * (1 if parts == "none" else 3))
    recipe = recommend(tokenizer, tasks=["passkey"])
    assert "(0.001 s), and 3.00 times its memory beside the weights (0.38 GiB)." in " ".join(recipe.says)
    assert recipe.evidence["memory"] == {"none": LENGTH * 2**20, "log": 3 * LENGTH * 2**20}


def test_a_decoder_is_tried_with_positions_in_range(tokenizer: Any, answering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = answering(helped_by("yarn:factor=4"))
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.calibrations", lambda *_: [])
    assert recommend(tokenizer, "llama", tasks=["passkey"], minutes=10).method == "yarn:factor=4"
    raced = {name for call in calls for name in call[1]}
    assert {"none", "truncate", f"rerope:window={TRAIN_LENGTH // 2}", "streaming_llm", "lm_infinite"} <= raced


def test_with_little_time_the_last_are_left_out(tokenizer: Any, answering: Any) -> None:
    calls = answering(helped_by("yarn:factor=4"))
    said = " ".join(recommend(tokenizer, "llama", tasks=["passkey"]).says)
    raced = next(call[1] for call in calls if len(call[1]) > 2)
    assert raced == ("none", "truncate", "yarn:factor=4")
    assert "lm_infinite (no time); log (no time); hedges (no recipe can hold one)" in said


def test_what_does_not_fit_into_memory_is_left_out(tokenizer: Any, answering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(helped_by("infoscale"))
    answered = QuestionExam.records

    def limited(self: QuestionExam, run: str, methods: Any, *asked: Any) -> list[Record]:
        if "log" in methods:
            raise MemoryError
        return answered(self, run, methods, *asked)

    monkeypatch.setattr(QuestionExam, "records", limited)
    recipe = recommend(tokenizer, tasks=["passkey"])
    assert recipe.method == "infoscale"
    assert "; log (no memory);" in " ".join(recipe.says)


def test_without_time_it_says_what_it_did_not_try(tokenizer: Any, answering: Any) -> None:
    answering(helped_by("log"))
    said = " ".join(recommend(tokenizer, tasks=["passkey"]).says)
    assert "Not tried: pmax-layer (no time); pmax-model (no time)" in said
    assert "give more --minutes" in said


def test_calibrated_temperatures_race_and_are_kept(tokenizer: Any, answering: Any, tmp_path: Path) -> None:
    answering(helped_by("pmax-layer"))
    recipe = recommend(tokenizer, tasks=["answer"], minutes=10, out=tmp_path)
    assert recipe.method == "pmax-layer"
    assert recipe.parts == (lw.Alignment.load(tmp_path / "pmax-layer.json"),)


def test_an_alignment_for_another_seed_is_made_anew(tokenizer: Any, answering: Any, tmp_path: Path) -> None:
    answering(helped_by("pmax-layer"))
    seeds = []
    for seed in (0, 0, 1):
        if seed:
            shutil.rmtree(tmp_path / "race", ignore_errors=True)
        recommend(tokenizer, tasks=["answer"], minutes=10, out=tmp_path, seed=seed)
        seeds.append(lw.Alignment.load(tmp_path / "pmax-layer.json").provenance["seed"])
    assert seeds == [0, 0, 1]


@pytest.fixture
def one_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.calibrations", lambda *_: [Calibration("pmax", "model")])
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.specs", lambda *_: [])
    monkeypatch.setattr("lengthwise.evaluation.recommendation.steps.ROUNDS", (4,))


def test_a_folder_begun_for_another_length_is_refused_and_keeps_its_alignment(
    tokenizer: Any, tmp_path: Path, one_calibration: None
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Case {i} " * 12, "target": "yes"}) + "\n" for i in range(8)))
    options: dict[str, Any] = {"data": file, "minutes": 10, "out": tmp_path / "out"}
    recipe = recommend(tokenizer, **options)
    assert "pmax-model" in [line["method"] for line in recipe.evidence["race"]]
    kept = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.json*")}
    with pytest.raises(BadInput, match="out was begun for another length or other questions; give another --out"):
        recommend(tokenizer, **options, length=2 * LENGTH)
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.json*")} == kept
    assert recommend(tokenizer, **options).evidence["race"] == recipe.evidence["race"]


def test_a_fit_is_for_the_same_questions_wherever_they_stand(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make("t5", 0)
    monkeypatch.chdir(tmp_path)

    def made_for(folder: Path) -> str:
        trial = (model, tokenizer, anatomy_of(model, None), LENGTH, 0, folder / "out", False)
        return _made_for(QuestionExam(*trial, ("multi_document_qa",), folder / "mine.jsonl", None, ""), "answers")

    write_questions(tmp_path / "mine.jsonl", make_up(6))
    first = made_for(tmp_path)
    assert made_for(Path()) == first
    write_questions(tmp_path / "mine.jsonl", make_up(8))
    assert made_for(Path()) != first


@pytest.mark.parametrize("name", ["pmax-model.json", "recipe.json"])
def test_files_that_no_recommendation_made_are_not_replaced(
    name: str, tokenizer: Any, answering: Any, tmp_path: Path, one_calibration: None
) -> None:
    answering(helped_by("pmax-model"))
    lw.calibrate(make("t5", 0), tokenizer, LENGTH, show_progress=False).save(tmp_path / name)
    mine = (tmp_path / name).read_bytes()
    with pytest.raises(BadInput, match=f"{name} is there and was not made by .recommend.*; give another --out"):
        recommend(tokenizer, tasks=["answer"], minutes=10, out=tmp_path)
    assert (tmp_path / name).read_bytes() == mine


def test_one_process_recommends_in_a_folder(tokenizer: Any, answering: Any, tmp_path: Path, one_calibration: None) -> None:
    answering(helped_by("pmax-model"))
    with claim(tmp_path / ".claim-recommend"), pytest.raises(BadInput, match="another process is recommending in"):
        recommend(tokenizer, tasks=["answer"], minutes=10, out=tmp_path)
    assert not [*tmp_path.iterdir()]
    assert recommend(tokenizer, tasks=["answer"], minutes=10, out=tmp_path).method == "pmax-model"


def test_tasks_that_the_model_cannot_do_are_not_asked(tokenizer: Any, answering: Any) -> None:
    answering(lambda *_: 0.125)
    with pytest.raises(BadInput, match="can do none of our tasks at its training length 32"):
        recommend(tokenizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_length": LENGTH}, "length 128 is within the training length 128"),
        ({"length": 10**20, "data": "x.jsonl"}, "is beyond all models"),
        ({"minutes": 0}, "minutes must be above 0 and finite, not 0"),
        ({"out": "a" * 300}, "cannot write a*/recipe.json: File name too long; give another place"),
        ({"minutes": math.inf, "tasks": ["passkey"]}, "minutes must be above 0 and finite, not inf"),
        ({"tasks": ["line", "passkey"], "data": "x.jsonl"}, "--data holds cases of one task"),
    ],
)
def test_bad_input_is_one_line(tokenizer: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        recommend(tokenizer, **options)


def test_of_your_own_cases_those_that_choose_do_not_confirm(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, used = tmp_path / "mine.jsonl", {"race": set[int](), "confirm": set[int]()}
    file.write_text("".join(json.dumps({"prompt": f"Case {i} " * 12, "target": "yes"}) + "\n" for i in range(9)))
    records = QuestionExam.records

    def spied(self: QuestionExam, run: str, *asked: Any) -> list[Record]:
        found = records(self, run, *asked)
        used[run] |= {record.index for record in found}
        return found

    monkeypatch.setattr(QuestionExam, "records", spied)
    recipe = recommend(tokenizer, data=file)
    assert used["race"] == {0, 2, 4, 6}
    assert used["confirm"] == {1, 3, 5, 7}
    assert recipe.says[0].startswith(
        "Use the plain model, which is not helped by anything that was tried: 0 % of your questions"
    )
    file.write_text(file.read_text().splitlines()[0] + "\n")
    used["race"].clear()
    with pytest.raises(BadInput, match="has one case; at least 2 are needed"):
        recommend(tokenizer, data=file)
    assert not used["race"]


def test_cases_that_the_model_reads_as_it_is_are_refused_before_they_are_asked(tokenizer: Any, tmp_path: Path) -> None:
    file, long = tmp_path / "mine.jsonl", {"prompt": "Case " * 12, "target": "yes"}
    file.write_text("".join(json.dumps({"prompt": f"Case {i}", "target": "yes"}) + "\n" for i in range(20)))
    with pytest.raises(BadInput, match=r"the cases in .*mine.jsonl have at most \d+ tokens, within the training length 32"):
        recommend(tokenizer, data=file, out=tmp_path / "out")
    assert not (tmp_path / "out" / "race").exists()
    # One that is longer can tell, however late it comes
    file.write_text(file.read_text() + json.dumps(long) + "\n")
    assert recommend(tokenizer, data=file).method


def test_an_answer_counts_once_whatever_scores_it_has(tokenizer: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Case {i} " * 12, "target": "yes"}) + "\n" for i in range(20)))
    evidence = recommend(tokenizer, data=file).evidence
    assert {(line["task"], line["n"]) for line in evidence["fresh"]} == {("answer", 4)}
    assert {line["n"] for line in evidence["race"]} == {4}


def test_of_your_own_questions_those_that_choose_do_not_confirm(tokenizer: Any, tmp_path: Path, uncalibrated: None) -> None:
    file, asked = tmp_path / "mine.jsonl", make_up(12)
    write_questions(file, asked)
    options: dict[str, Any] = {"tasks": "multi_document_qa", "data": file, "length": 1200, "train_length": 600}
    recipe = recommend(tokenizer, **options, out=tmp_path / "out", minutes=10)
    lines = {run: (tmp_path / "out" / run / "records.jsonl").read_text().splitlines() for run in ("race", "confirm")}
    chose, confirmed = ({json.loads(line)["target"] for line in lines[run]} for run in ("race", "confirm"))
    assert chose <= {question.answers[0] for question in asked[::2]}
    assert confirmed == {question.answers[0] for question in asked[1::2]}
    assert "6 fresh questions; questions that chose it are not among them" in " ".join(recipe.says)
    # Alone in its half, one has no documents of others around it
    write_questions(file, asked[:3])
    with pytest.raises(BadInput, match=r"the questions in .*mine.jsonl are 3; at least 4 are needed, some to choose by"):
        recommend(tokenizer, **options)


def make_up(count: int) -> list[Question]:
    return list(islice(made_up(random.Random(0)), count))


def test_a_recipe_is_a_method(tokenizer: Any, tmp_path: Path) -> None:
    model = make("llama", 0)
    alignment = lw.calibrate(model, tokenizer, LENGTH, method="yarn:factor=4", show_progress=False)
    recipe = Recipe("yarn:factor=4+pmax-model", ("yarn:factor=4", alignment), LENGTH, TRAIN_LENGTH, ("Use it.",))
    recipe.save(tmp_path / "recipe.json")
    ids = tokens(LENGTH)
    outputs = []
    for method in (["yarn:factor=4", alignment], recipe, f"@{tmp_path / 'recipe.json'}"):
        with lw.extend(model, method), torch.no_grad():
            outputs.append(logits(model, ids))
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    (tmp_path / "recipe.json").write_text('{"format": "lengthwise.recipe/1", "method": 3}')
    with pytest.raises(BadInput, match=r"recipe\.json is damaged"):
        lw.extend(model, f"@{tmp_path / 'recipe.json'}").__enter__()


def test_a_recipe_is_for_one_model(tokenizer: Any, answering: Any, tmp_path: Path) -> None:
    answering(helped_by("log"))
    recipe = recommend(tokenizer, tasks=["passkey"], out=tmp_path)
    same, other = make("t5", 0), make("t5", 1)
    for method in (recipe, f"@{tmp_path / 'recipe.json'}"):
        with lw.extend(same, method):
            pass
        with lw.extend(other, method, force=True):
            pass
        with pytest.raises(BadInput, match=r"^this recipe was made for another model: its weights is .*; ask `recommend`"):
            lw.extend(other, method).__enter__()
    run = {"tasks": ["answer"], "data": tmp_path / "mine.jsonl", "out": tmp_path / "run", "show_progress": False}
    run["data"].write_text(json.dumps({"prompt": "One", "target": "yes"}) + "\n")
    lw.evaluate(same, tokenizer, [f"@{tmp_path / 'recipe.json'}"], **run)
    replace(recipe, method="infoscale", parts=("infoscale",)).save(tmp_path / "recipe.json")
    with pytest.raises(BadInput, match="has changed since"):
        lw.evaluate(same, tokenizer, [f"@{tmp_path / 'recipe.json'}"], **run)
