"""Tables 2 to 7 and 9 to 11 of Output Alignment, on a tiny Llama that reads bytes."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ByT5Tokenizer

import lengthwise as lw
from experiments._lib import tuning_text
from experiments._lib.fine_tuning import Snapshot, trained
from experiments._lib.student import Mean
from experiments.misalignment_loss import data, page, run
from experiments.misalignment_loss.page import Outcome, Point
from experiments.misalignment_loss.run import Answers, Options, Result, Run, Setting
from lengthwise.models.load import load
from lengthwise.records.append_only import read_lines
from tests.helpers.answering import answering, saved

# Whole runs, before a release; four steps need no second file
pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore:the steps end before they reach")]
STEPS = 4
CLEX, LORA = Setting("clex", 1), Setting("longqlora", 2)
BY_KL = Setting("clex", 1, compare="kl")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        saved(answering("llama", max_position_embeddings=64, num_hidden_layers=1), tmp_path_factory.mktemp("tuned") / "tiny")
    )


@pytest.fixture(scope="module")
def babi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("babi")
    lines = [f"1 Al is in {place}.\n2 Where?\t{place}\t1\n" for place in ("bath", "garden", "office")]
    (folder / "qa1_tiny_test.txt").write_text("".join(lines))
    return folder


def options(model: str, novels: tuple[Path, ...], out: Path, **changes: Any) -> Options:
    given: dict[str, Any] = {"steps": STEPS, "seeds": 2, "batch": 2, "rates": (0.001,), "streams": 1, "pairs": 2}
    given |= {"samples": 1, "kinds": ("qa1",), "dtype": "float32", "device": "cpu", "babi": Path("not read")}
    return Options(**{"model": model, "out": out, "books": novels[:2], "held_out": novels[2:], **given, **changes})


def few(seeds: int) -> list[list[Run]]:
    """A grid that takes seconds."""
    paired = [Run(CLEX, alpha, seed) for alpha in (0.0, 0.1) for seed in range(seeds)]
    return [paired, [], [], [], [], [Run(BY_KL, 10.0, 0)]]


@pytest.fixture(scope="module")
def finished(model: str, novels: tuple[Path, ...], babi: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "stages", few)
        patched.setattr(run, "step_cost", partial(run.step_cost, pairs=1, warm=0))
        # So short a prompt has no room for instructions
        patched.setattr(data.babilong, "INTRODUCTION", "Facts:")
        patched.setattr(data.babilong, "QUESTION", "{question} Answer:")
        patched.setattr(data.babilong, "ANSWER_TOKENS", 3)
        patched.setattr(data, "cells", lambda *given, made=data.cells: made(*given)[:2])
        run.run(options(model, novels, out, babi=babi, command="as typed"))
    return out


def test_a_seed_draws_other_text_and_what_is_held_back_is_never_trained_on(novels: tuple[Path, ...], tmp_path: Path) -> None:
    books = tuning_text.read_books(novels[:2])
    beginnings = set()
    for seed in range(3):
        files = [Path(file) for file in tuning_text.training_files(books, seed, tmp_path)]
        assert tuning_text.training_files(books, seed, tmp_path) == list(map(str, files))
        read = [file.read_text().strip().split("\n\n") for file in files]
        beginnings |= {book[0] for book in read}
        # Nothing is lost and nothing doubled, and the last tenth is not there
        assert sorted(paragraph for book in read for paragraph in book) == sorted([*books[0][:54], *books[1][:54]])
    assert len(beginnings) == 6
    assert [tuning_text.held_back(book) for book in books] == [book[54:] for book in books]


@pytest.mark.parametrize("setting", [CLEX, LORA])
def test_snapshots_are_the_models_that_shorter_runs_leave(
    setting: Setting, model: str, novels: tuple[Path, ...], tmp_path: Path
) -> None:
    """The text has fewer rows than two steps take, so that runs of all lengths are of the same rows."""
    asked = options(model, novels, tmp_path, batch=20)

    def said(path: str, weights: Any, method: str) -> torch.Tensor:
        loaded, _ = load(path, "float32", "cpu")
        if weights is not None:
            loaded.load_state_dict(weights)
        ids = torch.randint(40, 120, (1, 150), generator=torch.Generator().manual_seed(1))
        with lw.extend(loaded, method), torch.no_grad():
            return loaded(input_ids=ids).logits

    def snapshots(steps: int, at: list[int]) -> tuple[dict[int, Snapshot], dict[int, torch.Tensor], torch.Tensor]:
        how = run.how_trained(Run(setting, 0.3, 5), asked, 64, steps, 0.01)
        with trained(model, [str(novels[0])], tmp_path / "run", at, **how) as taken:
            logits = {one.steps: said(model, one.weights, one.method) for one in taken}
            method = (tmp_path / "run" / "trained" / "method.txt").read_text().strip()
            last = said(str(tmp_path / "run" / "trained" / "model"), None, method)
        assert not (tmp_path / "run").exists()
        return {one.steps: one for one in taken}, logits, last

    whole, logits, last = snapshots(4, [0, 2, 4])
    torch.testing.assert_close(logits[4], last, atol=1e-4, rtol=1e-4)
    part, short, _ = snapshots(2, [2])
    for name, weight in part[2].weights.items():
        torch.testing.assert_close(whole[2].weights[name], weight, msg=name)
    torch.testing.assert_close(logits[2], short[2])
    own = load(model, "float32", "cpu")[0].state_dict()
    assert all(torch.equal(whole[0].weights[name], weight) for name, weight in own.items())
    moved = {name for name, weight in own.items() if not torch.equal(whole[4].weights[name], weight)}
    # LoRA leaves norms and embeddings where they are
    assert moved == ({name for name in own if "_proj" in name} if setting == LORA else set(own))


def test_the_likeliest_label_is_that_of_a_loop_over_labels() -> None:
    loaded, tokenizer = answering("llama", max_position_embeddings=64), ByT5Tokenizer()
    torch.nn.init.normal_(loaded.lm_head.weight, std=0.5)
    labels = ["bathroom", "den", "hall"]
    prompts = [[ord(sign) + 3 for sign in f"{'x' * k} the answer is:"] for k in range(12)]
    questions = [data.Question(prompt, labels[k % 3], labels) for k, prompt in enumerate(prompts)]
    marks = data.likeliest(loaded, tokenizer, data.Cell("qa1", 1, None, questions), "none")
    expected = []
    for question in questions:
        scores = {}
        for label in labels:
            ids = torch.tensor([*question.prompt, *(ord(sign) + 3 for sign in f" {label}")])
            with torch.no_grad():
                logits = loaded(input_ids=ids[None]).logits[0].double().log_softmax(-1)
            scores[label] = sum(float(logits[at - 1, ids[at]]) for at in range(len(question.prompt), len(ids)))
        expected.append(int(max(scores, key=lambda label: scores[label]) == question.target))
    assert marks == expected
    assert 0 < sum(marks) < len(marks)
    # Equally likely labels are no right answer
    loaded.lm_head.weight.data.zero_()
    assert data.likeliest(loaded, tokenizer, data.Cell("qa1", 1, None, questions[:1]), "none") == [0]


def result(alpha: float, seed: int, long: list[float], **changes: Any) -> tuple[Point, dict[str, Any]]:
    """The same two streams at every long length."""
    numbers = {"seed": seed, "nll": [[1.0, 1.0], long, long, long], "sce": 2.0 - alpha, "kl": 0.5, **changes}
    return Point(CLEX, alpha, 4), numbers


def test_ratios_are_paired_over_seeds() -> None:
    """By hand: differences of -0.1, -0.2 and -0.3 have a standard error of 0.1 / sqrt 3, and Student's factor is 4.3027."""
    results = [result(0.0, seed, [3.0 + seed, 5.0 + seed]) for seed in range(3)]
    results += [result(0.1, seed, [3.1 + seed, 4.7 - 0.2 * seed + seed]) for seed in range(3)]
    outcome = Outcome(results)
    with_loss, without = Point(CLEX, 0.1, 4), Point(CLEX, 0.0, 4)
    ratio = outcome.ratio(with_loss, without)
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert [ratio[key] for key in ("value", "low", "high")] == pytest.approx(
        [math.exp(d) for d in (-0.2, -0.2 - half, -0.2 + half)]
    )
    assert (ratio["seeds"], ratio["lower"]) == (3, 0.5)
    assert outcome.perplexity(without)["2 x"] == pytest.approx(math.exp(5.0))
    less = outcome.difference(with_loss, without, "sce")
    assert less.value == pytest.approx(-0.1)
    assert outcome.ratio(with_loss, Point(CLEX, 0.5, 4)) is None
    assert Mean.of([0.5]) == Mean(0.5, None, None)
    # A loss that is not finite has no ratio
    assert Outcome([*results[:3], result(0.1, 0, [], sce=None, kl=None)]).ratio(with_loss, without) is None

    # Shares of BABILong, too: differences of 25 and 50 points have a standard error of 12.5, times Student's 12.706
    marks = {(0.0, 0): [1, 0, 0, 0], (0.0, 1): [0] * 4, (0.1, 0): [1, 1, 0, 0], (0.1, 1): [1, 1, 0, 0], (0.1, 2): [1] * 4}
    cells = [{"alpha": alpha, "seed": seed, "likeliest": right} for (alpha, seed), right in marks.items()]
    shares = page.share(cells, "likeliest")
    assert (*shares[:2], shares[2].value) == (12.5, 50.0, 37.5)
    assert shares[2].high == pytest.approx(37.5 + 12.706205 * 12.5)


def test_every_run_is_measured_told_of_and_no_weights_are_left(finished: Path) -> None:
    results = read_lines(finished / "results.jsonl", Result)
    assert {one.key for one in results} == {
        (one.name, steps) for stage in few(2) for one in stage for steps in run.measured_at(one, STEPS)
    }
    assert {one.sce is not None for one in results if one.steps == STEPS} == {True}
    stages = run.stages(3)
    assert [len(stage) for stage in stages] == [30, 36, 9, 9, 30, 18]
    assert run.measured_at(Run(CLEX, 0.1, 0), 200) == (47, 50, 95, 100, 190, 200)
    names = [f"clex-1x-1..L_2-alpha{alpha}-seed{seed}" for alpha in (0, 0.1) for seed in (0, 1)]
    losses = {one.key: one.nll for one in results}
    assert len({json.dumps(losses[name, STEPS]) for name in (*names, "clex-1x-1..L_2-kl-alpha10-seed0")}) == 5
    assert losses[names[0], 0] == losses[names[1], 0]
    assert len(read_lines(finished / "answers.jsonl", Answers)) == 4 * 2
    assert not list((finished / "runs").iterdir())
    document = json.loads((finished / "misalignment_loss.json").read_text())
    rows = next(one for one in document["points"] if (one["adjustment"], one["alpha"]) == ("clex", 0.1))["measured"]
    assert [(row["steps"], row["against_steps"]) for row in rows] == [(1, 1), (2, 2), (1, 2), (4, 4), (3, 4)]
    apart = [losses[names[2 + seed], 3][2][0] - losses[names[seed], 4][2][0] for seed in (0, 1)]
    assert rows[-1]["ratio_to_alpha_0"]["4 x"]["value"] == pytest.approx(math.exp(sum(apart) / 2))
    assert (finished / "misalignment_loss.md").exists()
