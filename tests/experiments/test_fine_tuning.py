"""Tables 2 to 7 and 9 to 11 of Output Alignment, on a tiny Llama that reads bytes."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ByT5Tokenizer

import lengthwise as lw
from experiments.output_alignment import fine_tuning, fine_tuning_page, fine_tuning_subject, fine_tuning_work
from experiments.output_alignment import fine_tuning_babilong as questions
from experiments.output_alignment import fine_tuning_cost as costs
from experiments.output_alignment import fine_tuning_grid as grid
from experiments.output_alignment import fine_tuning_paper as paper
from experiments.output_alignment import fine_tuning_tables as tables
from experiments.output_alignment import fine_tuning_text as texts
from experiments.output_alignment.fine_tuning_answers import by_length, share
from experiments.output_alignment.fine_tuning_chart import chart
from experiments.output_alignment.fine_tuning_compared import HARMS, HELPS, LONG, UNDECIDED, Outcome, Point, mean_of
from experiments.output_alignment.fine_tuning_findings import Findings
from experiments.output_alignment.fine_tuning_grid import Run, Setting
from experiments.output_alignment.fine_tuning_measures import Reader
from experiments.output_alignment.fine_tuning_records import Answers, Found, Records, Result, Trial
from experiments.output_alignment.fine_tuning_subject import Settings
from experiments.output_alignment.fine_tuning_training import Recipe, Snapshot, trained
from lengthwise.models.load import load
from tests.helpers.answering import answering, saved

# Four steps need no second file
pytestmark = pytest.mark.filterwarnings("ignore:the steps end before they reach")
STEPS = 4
CLEX, EABF, LORA = Setting("clex", 1), Setting("eabf", 1), Setting("longqlora", 2)
BY_KL = Setting("clex", 1, compare="kl")
PLACES = ("bath", "garden", "office")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(answering("llama", max_position_embeddings=64), tmp_path_factory.mktemp("tuned") / "tiny"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("novels")
    for name in ("apple", "birch", "cedar"):
        (folder / f"{name}.txt").write_text("\n\n".join(f"The {name} {k} begins, and {name} {k * k} ends." for k in range(120)))
    (folder / "babi").mkdir()
    lines = [f"1 Al is in {place}.\n2 Where?\t{place}\t1\n" for place in PLACES]
    (folder / "babi" / "qa1_tiny_test.txt").write_text("".join(lines))
    return {path.stem: path for path in folder.iterdir()}


def asked(model: str, library: dict[str, Path], **changes: Any) -> Settings:
    given: dict[str, Any] = {"steps": STEPS, "seeds": 2, "batch": 2, "rates": (0.001, 0.01), "streams": 1, "pairs": 2}
    given |= {"samples": 2, "kinds": ("qa1",), "dtype": "float32", "device": "cpu", "babi": library["babi"]}
    given |= {"books": (library["apple"], library["birch"]), "held_out": (library["cedar"],)}
    return Settings(model, **{**given, **changes})


def few(seeds: int) -> list[list[Run]]:
    """A grid that takes seconds."""
    wanted = [[(CLEX, 0.0), (CLEX, 0.1)], [(LORA, 0.0)], [], [], [], [(BY_KL, 10.0)]]
    return [[Run(setting, alpha, seed) for setting, alpha in stage for seed in range(seeds)] for stage in wanted]


@pytest.fixture(scope="module")
def finished(model: str, library: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib")
    out = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fine_tuning_subject, "stages", few)
        patched.setattr(fine_tuning_page, "stages", few)
        patched.setattr(costs, "PAIRS", 2)
        # So short a prompt has no room for instructions
        patched.setattr(questions.babilong, "INTRODUCTION", "Facts:")
        patched.setattr(questions.babilong, "QUESTION", "{question} Answer:")
        patched.setattr(questions.babilong, "ANSWER_TOKENS", 3)
        fine_tuning.run(fine_tuning.Options(out, asked(model, library), command="as typed"))
    return out


def test_the_grid_has_the_papers_settings_and_steps() -> None:
    stages = grid.stages(3)
    assert [len(stage) for stage in stages] == [30, 36, 9, 9, 30, 18]
    assert len(stages) == len(grid.STAGES)
    runs = [run for stage in stages for run in stage]
    assert len({run.name for run in runs}) == len(set(runs)) == 132
    assert not any(sign in run.name for run in runs for sign in "+,/")
    assert (grid.marks(200), tuple(map(grid.cheaper, paper.STEPS))) == (paper.STEPS, paper.CHEAPER)
    assert grid.measured_at(runs[0], 200) == (0, 50, 100, 200)
    assert grid.measured_at(Run(CLEX, 0.1, 0), 200) == (47, 50, 95, 100, 190, 200)
    assert [run.name for run in runs if run.answers] == [
        f"clex-1x-1..L_2-alpha{alpha}-seed{seed}" for alpha in ("0", "0.1") for seed in range(3)
    ]
    assert {(run.setting, run.alpha) for run in stages[5]} == {
        (Setting(name, 1, compare="kl"), alpha) for name in ("clex", "eabf") for alpha in (0.1, 1, 10)
    }
    assert stages[5][0].name == "clex-1x-1..L_2-kl-alpha0.1-seed0"
    table_4 = {run.alpha for run in stages[0] if run.setting == CLEX}
    assert table_4 == set(paper.TABLE_4)
    assert {run.setting.sampling for run in stages[3]} | {grid.SAMPLING} == set(paper.TABLE_5)
    assert set(paper.TABLE_3) <= {(run.setting.adjustment, run.alpha) for run in stages[1]}
    assert set(paper.TABLE_11) <= {(run.setting.adjustment, run.alpha) for run in (*stages[1], *stages[2])}


def test_a_seed_draws_other_text_and_what_is_held_back_is_never_trained_on(library: dict[str, Path], tmp_path: Path) -> None:
    books = texts.read_books([library["apple"], library["birch"]])
    assert [len(book) for book in books] == [120, 120]
    read = []
    for seed in range(3):
        files = [Path(file) for file in texts.training_files(books, seed, tmp_path)]
        before = [file.stat().st_mtime_ns for file in files]
        assert texts.training_files(books, seed, tmp_path) == list(map(str, files))
        assert [file.stat().st_mtime_ns for file in files] == before
        read.append([file.read_text().strip().split("\n\n") for file in files])
        # Nothing is lost and nothing doubled, and the last tenth is not there
        assert sorted(paragraph for book in read[-1] for paragraph in book) == sorted([*books[0][:108], *books[1][:108]])
    assert len({book[0] for both in read for book in both}) == 6
    assert [texts.held_back(book) for book in books] == [book[108:] for book in books]


def test_streams_are_spread_over_the_books(library: dict[str, Path]) -> None:
    books = texts.read_books([library["apple"], library["cedar"]])
    found = texts.streams(ByT5Tokenizer(), books, 3, 100)
    assert found.shape == (6, 100)
    for row, (book, first) in zip(found, [(b, f) for b in books for f in (0, 40, 80)], strict=True):
        expected = "\n\n".join(book[first:])[:100]
        assert bytes(int(token) - 3 for token in row).decode() == expected
    with pytest.raises(lw.BadInput, match="a stream takes 9,999; give longer books or fewer --streams"):
        texts.streams(ByT5Tokenizer(), books, 3, 9999)


def snapshots_of(run: Run, recipe: Recipe, files: list[str], folder: Path, at: list[int], **extra: Any) -> dict[int, Any]:
    """Each as a model of its own, with its method's logits of some tokens."""
    kept: dict[int, Any] = {}

    def use(snapshots: list[Snapshot]) -> None:
        for one in snapshots:
            kept[one.steps] = (one.weights, said(recipe.model, one.weights, one.method))
        if "saved" in extra:
            method = (folder / "trained" / "method.txt").read_text().strip()
            extra["saved"].append(said(str(folder / "trained" / "model"), None, method))

    trained(run, recipe, 0.01, files, folder, at, use)
    assert not folder.exists()
    return kept


def said(model: str, weights: dict[str, torch.Tensor] | None, method: str) -> torch.Tensor:
    loaded, _ = load(model, "float32", "cpu")
    if weights is not None:
        loaded.load_state_dict(weights)
    ids = torch.randint(40, 120, (1, 300), generator=torch.Generator().manual_seed(1))
    with lw.extend(loaded, method), torch.no_grad():
        return loaded(input_ids=ids).logits


@pytest.mark.parametrize("setting", [CLEX, LORA, Setting("eabf", 1, "1..L")])
def test_snapshots_are_the_models_that_shorter_runs_leave(
    setting: Setting, model: str, library: dict[str, Path], tmp_path: Path
) -> None:
    """The text has fewer rows than two steps take, so that runs of all lengths are of the same rows."""
    run = Run(setting, 0.3, 5)
    short, long = (Recipe(model, 64, steps, 40, "float32", "cpu") for steps in (2, 4))
    files = [str(library["apple"])]
    last: list[torch.Tensor] = []
    whole = snapshots_of(run, long, files, tmp_path / "long", [0, 2, 4], saved=last)
    assert list(whole) == [0, 2, 4]
    torch.testing.assert_close(whole[4][1], last[0], atol=1e-4, rtol=1e-4)
    part = snapshots_of(run, short, files, tmp_path / "short", [2])
    for name, weight in part[2][0].items():
        torch.testing.assert_close(whole[2][0][name], weight, msg=name)
    torch.testing.assert_close(whole[2][1], part[2][1])
    own = load(model, "float32", "cpu")[0].state_dict()
    assert all(torch.equal(whole[0][0][name], weight) for name, weight in own.items())
    moved = {name for name, weight in own.items() if not torch.equal(whole[4][0][name], weight)}
    # LoRA leaves norms and embeddings where they are
    assert moved == ({name for name in own if "_proj" in name} if setting == LORA else set(own))


def test_perplexities_are_those_of_loops_over_the_models_own_logits() -> None:
    loaded = answering("llama", max_position_embeddings=32)
    ids = torch.randint(40, 120, (2, 129), generator=torch.Generator().manual_seed(0))
    found = Reader(loaded, ids, [32, 64, 128]).nll("eabf")
    for length, means in zip((32, 64, 128), found, strict=True):
        for stream, mean in zip(ids, means, strict=True):
            losses = []
            with lw.extend(loaded, "eabf"), torch.no_grad():
                for start in range(0, 128, length):
                    logits = loaded(input_ids=stream[None, start : start + length]).logits[0].double().log_softmax(-1)
                    losses += [-float(logits[at, stream[start + at + 1]]) for at in range(length)]
            assert len(losses) == 128
            assert mean == pytest.approx(sum(losses) / 128, rel=1e-5)
    loaded.lm_head.weight.data[:] = math.nan
    assert Reader(loaded, ids, [32, 64]).nll("none") == [[], []]


def test_the_likeliest_label_is_that_of_a_loop_over_labels() -> None:
    loaded, tokenizer = answering("llama", max_position_embeddings=64), ByT5Tokenizer()
    torch.nn.init.normal_(loaded.lm_head.weight, std=0.5)
    labels = ["bathroom", "den", "hall"]
    prompts = [[ord(sign) + 3 for sign in f"{'x' * k} the answer is:"] for k in range(12)]
    asks = [questions.Question(prompt, labels[k % 3], labels) for k, prompt in enumerate(prompts)]
    found = questions.likeliest(loaded, tokenizer, questions.Cell("qa1", 1, None, asks), "none")
    expected = []
    for one in asks:
        scores = {}
        for label in labels:
            ids = torch.tensor([*one.prompt, *(ord(sign) + 3 for sign in f" {label}")])
            with torch.no_grad():
                logits = loaded(input_ids=ids[None]).logits[0].double().log_softmax(-1)
            scores[label] = sum(float(logits[at - 1, ids[at]]) for at in range(len(one.prompt), len(ids)))
        expected.append(int(max(scores, key=lambda label: scores[label]) == one.target))
    assert found == expected
    assert 0 < sum(found) < len(found)


def test_equally_likely_labels_are_no_right_answer() -> None:
    loaded = answering("llama", max_position_embeddings=64)
    loaded.lm_head.weight.data.zero_()
    asks = [questions.Question([50, 51], "den", ["den", "inn"])]
    cell = questions.Cell("qa1", 1, None, asks)
    assert questions.likeliest(loaded, ByT5Tokenizer(), cell, "none") == [0]
    assert cell.chance == 0.5


def result(setting: Setting, alpha: float, seed: int, steps: int, long: list[float], **changes: Any) -> Result:
    """The same two streams at every long length."""
    nll = [[1.0, 1.0], long, long, long]
    given = {"rate": 1e-3, "sce": 2.0 - alpha, "kl": 0.5 + 0.01 * seed * alpha, "seconds": 1.0, "nll": nll, **changes}
    return Result(setting.adjustment, setting.factor, setting.sampling, alpha, seed, steps, compare=setting.compare, **given)


def test_ratios_are_paired_over_seeds() -> None:
    """By hand: differences of -0.1, -0.2 and -0.3 have a standard error of 0.1 / sqrt 3, and Student's factor is 4.3027."""
    results = [result(CLEX, 0.0, seed, 4, [3.0 + seed, 5.0 + seed]) for seed in range(3)]
    results += [result(CLEX, 0.1, seed, 4, [3.1 + seed, 4.7 - 0.2 * seed + seed]) for seed in range(3)]
    outcome = Outcome(results)
    one, other = Point(CLEX, 0.1, 4), Point(CLEX, 0.0, 4)
    found = outcome.ratio(one, other)
    assert found is not None
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert found.value == pytest.approx(math.exp(-0.2))
    assert (found.low, found.high) == (pytest.approx(math.exp(-0.2 - half)), pytest.approx(math.exp(-0.2 + half)))
    assert (found.seeds, found.lower, found.verdict) == (3, 0.5, UNDECIDED)
    assert outcome.perplexity(other, 2) == pytest.approx(math.exp(5.0))
    same = outcome.ratio(one, other, (1,))
    assert same is not None
    assert (same.value, same.low, same.high) == (1.0, 1.0, 1.0)
    less = outcome.difference(one, other, "sce")
    assert less is not None
    assert (less.value, less.sign) == (pytest.approx(-0.1), -1)
    assert outcome.ratio(one, Point(CLEX, 0.5, 4)) is None


def test_one_seed_has_no_interval_and_no_verdict() -> None:
    single = mean_of([0.5])
    assert (single.value, single.low, single.high, single.sign) == (0.5, None, None, 0)
    outcome = Outcome([result(CLEX, 0.0, 0, 4, [3.0, 3.0]), result(CLEX, 0.1, 0, 4, [2.0, 2.0])])
    found = outcome.ratio(Point(CLEX, 0.1, 4), Point(CLEX, 0.0, 4))
    assert found is not None
    assert (found.low, found.verdict) == (None, UNDECIDED)


def test_a_loss_that_is_not_finite_has_no_ratio_and_is_told() -> None:
    results = [result(CLEX, alpha, seed, 4, [3.0, 3.0]) for alpha in (0.0, 1.0) for seed in range(2)]
    results[-1] = replace(results[-1], nll=[[1.0, 1.0], [], [], []], sce=None, kl=None)
    outcome = Outcome(results)
    one, other = Point(CLEX, 1.0, 4), Point(CLEX, 0.0, 4)
    assert outcome.ratio(one, other) is None
    assert outcome.difference(one, other, "sce") is None
    (line,) = [line for line in tables.Tables(outcome, 4).by_alpha(1, False) if line[1] == "1"]
    assert line[3:7] == ["2.72", "not finite", "not finite", "not finite"]


def findings(changes: dict[Setting, float], noise: float = 0.001) -> Findings:
    """Runs whose losses alpha 0.1 and 0.3 change by so much, at equal compute."""
    results = []
    for setting, change in changes.items():
        for seed in range(3):
            results.append(result(setting, 0.0, seed, 200, [3.0 + seed, 4.0]))
            for alpha in (0.1, 0.3):
                for steps, further in ((200, 0.0), (190, 0.001)):
                    moved = change + further + noise * (seed - 1)
                    results.append(result(setting, alpha, seed, steps, [3.0 + seed + moved, 4.0 + moved]))
    return Findings(Found([], results, []), Outcome(results), 200, None)


TWICE = Setting("eabf", 2)


@pytest.mark.parametrize(
    ("changes", "noise", "words", "names"),
    [
        ({CLEX: -0.05, EABF: -0.02}, 0.001, "improves", "clex, eabf"),
        ({CLEX: -0.05, EABF: 0.02}, 0.001, "does not improve", "clex"),
        ({CLEX: -0.05, EABF: -0.02}, 0.05, "does not improve", "no adjustment"),
        # Plain fine-tuning is no adjustment, and what helps at one length and harms at another does not count
        ({CLEX: -0.05, Setting("none", 2): -0.05}, 0.001, "does not improve", "clex"),
        ({CLEX: -0.05, EABF: -0.05, TWICE: 0.05}, 0.001, "does not improve", "clex"),
    ],
)
def test_the_answer_follows_from_the_intervals(changes: dict[Setting, float], noise: float, words: str, names: str) -> None:
    first = findings(changes, noise).said()[0]
    assert first.startswith(f"**With alpha 0.1 to 0.3, long perplexity {words} over alpha 0 at equal compute")
    assert f"alpha 0.1: {names}; alpha 0.3: {names}." in first


def test_equal_compute_takes_the_runs_of_fewer_steps() -> None:
    found = findings({CLEX: -0.05, EABF: 0.05})
    equal = found.compared(0.1, True, (2,))
    same = found.compared(0.1, False, LONG)
    assert equal[CLEX].value == pytest.approx(math.exp(-0.049))
    assert same[CLEX].value == pytest.approx(math.exp(-0.05))
    assert (equal[CLEX].verdict, equal[EABF].verdict) == (HELPS, HARMS)
    assert "Alpha 0.1, 190 steps against 200 (equal compute): helps 1, harms 1, undecided 0 of 2. " in " ".join(found.said())


def by_kl(changes: dict[str, float], alpha: float = 10.0) -> list[Result]:
    """Runs compared by KL, after all steps and after 190 of them; those with alpha 0 are there anyway."""
    return [
        result(Setting(name, 1, compare="kl"), alpha, seed, steps, [3.0 + seed + moved, 4.0 + moved], sce=2.0, kl=0.2)
        for name, change in changes.items()
        for seed in range(3)
        for steps in (200, 190)
        for moved in [change + 0.001 * (seed - 1)]
    ]


def test_runs_compared_by_kl_are_told_apart_and_share_those_without_alpha() -> None:
    plain = findings({CLEX: 0.05, EABF: 0.05})
    assert not any("KL, with alpha" in words for words in plain.said())
    results = [*plain.found.results, *by_kl({"clex": -0.05, "eabf": -0.02})]
    found = Findings(Found([], results, []), Outcome(results), 200, None)
    said = found.said()
    assert said[0] == plain.said()[0]
    assert said[1].startswith(
        "**Not in the paper: compared by the symmetric KL, with alpha 0.1 to 10, long perplexity improves "
    )
    assert "alpha 0.1: no adjustment; alpha 1: no adjustment; alpha 10: clex, eabf." in said[1]
    ratio = found.compared(10.0, True, compare="kl")[BY_KL]
    assert (ratio.value, ratio.verdict) == (pytest.approx(math.exp(-0.05)), HELPS)
    assert set(found.compared(0.1, True)) == {CLEX, EABF}
    made = tables.Tables(found.outcome, 200)
    assert [(line[0], line[1], line[2]) for line in made.by_kl(False)] == [
        (name, alpha, 200) for name in ("clex", "eabf") for alpha in ("0", "10")
    ]
    assert [(line[1], line[2], line[-2]) for line in made.by_kl(True)] == [("10", 190, HELPS)] * 2
    assert {line[1] for line in made.by_alpha(1, False)} == {"0", "0.1", "0.3"}
    assert tables.Tables(plain.outcome, 200).by_kl(False) == []


def test_the_fall_of_the_loss_is_taken_apart_into_kl_and_entropy() -> None:
    """By hand: with alpha 0.1 L_misalign is 1.9 instead of 2, and KL 0.501 in the mean of three seeds instead of 0.5."""
    results = [*findings({CLEX: 0.05}).found.results, *by_kl({"clex": 0.0})]
    said = Findings(Found([], results, []), Outcome(results), 200, None).said()
    change = "on novels held out, change against alpha 0 in nats: alpha"
    assert said[2] == (
        f"What the loss does to L_misalign = KL + H(y) + H(y') {change} 0.1: clex at 1 x -0.100, "
        "of which KL is +0.0010 and entropy -0.101."
    )
    # KL 0.2 instead of 0.5, all else the same
    assert said[3] == (
        f"What KL in its place does to it {change} 10: clex at 1 x, by KL +0.000, of which KL is -0.3000 and entropy +0.300."
    )


def test_lines_of_before_there_was_a_choice_are_of_the_papers_comparison(finished: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (finished / "results.jsonl").read_text().splitlines()]
    old = [{key: value for key, value in line.items() if key != "compare"} for line in lines if line["compare"] == "sce"]
    assert 0 < len(old) < len(lines)
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in old))
    assert Found.in_(tmp_path).results == [one for one in Found.in_(finished).results if one.compare == "sce"]
    records = Records(tmp_path)
    assert records.has(Run(CLEX, 0.1, 0), STEPS)
    assert not records.has(Run(BY_KL, 10.0, 0), STEPS)


def test_all_panels_share_a_logarithmic_axis_and_name_their_alphas() -> None:
    pytest.importorskip("matplotlib")
    twice = {Setting(name, factor): 2.0 for name in ("clex", "eabf", "none") for factor in (1, 2)}
    results = [*findings(twice).found.results, *by_kl({"clex": 0.0})]
    figure = chart(Outcome(results), 200)
    figure.draw_without_rendering()
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels[:2]] == ["clex at 1 x", "eabf at 1 x"]
    assert panels[-1].get_title() == "clex at 1 x, by KL"
    assert {(axes.get_yscale(), axes.get_ylim()) for axes in panels} == {("log", panels[0].get_ylim())}
    low, high = panels[0].get_ylim()
    assert low < 1 < math.exp(2.0) < high
    for axes in panels:
        shown = [label.get_text() for label in axes.get_xticklabels() if label.get_visible()]
        assert shown == (["0.1", "1", "10"] if axes is panels[-1] else ["0.1", "0.3", "0.5", "1"])
        assert all(tick.tick1line.get_visible() and tick.label1.get_visible() for tick in axes.xaxis.get_major_ticks())


def test_the_papers_changes_stand_beside_ours() -> None:
    results = [
        result(CLEX, alpha, seed, steps, [3.0, 3.0]) for alpha in (0.0, 0.1) for seed in (0, 1) for steps in (50, 100, 200)
    ]
    results += [result(CLEX, 0.1, seed, steps, [3.0, 3.0]) for seed in (0, 1) for steps in (47, 95, 190)]
    made = tables.Tables(Outcome(results), 200)
    lines = {(line[1], line[2]): line[-1] for line in made.by_alpha(1, False)}
    assert lines["0", 200] == "RedPajama-Book 6.12; PG19 7.45"
    assert lines["0.1", 100] == "RedPajama-Book 6.24 (-4.9 %); PG19 7.92 (+0.4 %)"
    equal = {(line[1], line[2]): line[-1] for line in made.by_alpha(1, True)}
    assert set(equal) == {("0.1", 47), ("0.1", 95), ("0.1", 190)}
    assert equal["0.1", 190] == "RedPajama-Book 5.91 (-3.4 %); PG19 7.39 (-0.8 %)"


def test_shares_of_babilong_are_paired_over_seeds() -> None:
    def answers(alpha: float, seed: int, marks: list[int]) -> Answers:
        return Answers("run", alpha, seed, "qa1", 2, None, [0, 0, 0, 0], marks, 0.25)

    some = [answers(0.0, 0, [1, 0, 0, 0]), answers(0.0, 1, [0, 0, 0, 0]), answers(0.1, 0, [1, 1, 0, 0])]
    some += [answers(0.1, 1, [1, 1, 0, 0]), answers(0.1, 2, [1, 1, 1, 1])]
    (cell,) = by_length(some).values()
    found = share(cell, "likeliest", 0.1)
    assert found is not None
    assert (found.without, found.with_loss, found.more.value, found.more.seeds) == (12.5, 50.0, 37.5, 2)
    # Differences of 25 and 50 points: a standard error of 12.5, times Student's 12.706
    assert found.more.high == pytest.approx(37.5 + 12.706205 * 12.5)
    assert share(cell, "generated", 0.5) is None


def test_the_lowest_loss_chooses_the_rate() -> None:
    trials = [Trial("clex", 1, rate, 2, nll) for rate, nll in ((1e-4, 3.0), (3e-4, 2.0), (1e-3, 2.0), (3e-3, None))]
    assert fine_tuning_work.chosen("clex", [*trials, Trial("eabf", 1, 1e-2, 2, 1.0)]) == 3e-4
    assert tables.rates(trials, {"clex": 3e-4}) == [["clex", "20.09", "**7.39**", "7.39", "not finite"]]
    with pytest.raises(lw.BadInput, match="no learning rate suits clex"):
        fine_tuning_work.chosen("clex", trials[3:])


def test_the_cost_of_a_step_is_measured_and_nothing_moves() -> None:
    loaded = answering("llama", max_position_embeddings=64)
    before = {name: weight.clone() for name, weight in loaded.state_dict().items()}
    found = costs.measured(loaded, 64, 3, "float32", pairs=2)
    assert 0 < found.low <= found.ratio <= found.high
    assert (found.tokens, found.pairs, found.device) == (2 * 3 * 64, 2, "cpu")
    assert not loaded.training
    assert all(weight.grad is None for weight in loaded.parameters())
    assert all(torch.equal(before[name], weight) for name, weight in loaded.state_dict().items())


def test_every_run_is_measured_and_no_weights_are_left(finished: Path) -> None:
    found = Found.in_(finished)
    expected = {(run.name, steps) for stage in few(2) for run in stage for steps in grid.measured_at(run, STEPS)}
    assert {one.key for one in found.results} == expected
    assert all(len(one.nll) == 4 and all(len(streams) == 1 for streams in one.nll) for one in found.results)
    assert {(one.sce is not None, one.kl is not None) for one in found.results if one.steps == STEPS} == {(True, True)}
    assert {one.sce for one in found.results if one.steps < STEPS} == {None}
    # Before the first step there is only the method
    zero = {(one.adjustment, tuple(map(tuple, one.nll))) for one in found.results if one.steps == 0}
    assert len(zero) == 2
    assert {one.key for one in found.trials} == {(name, rate) for name in ("clex", "longqlora") for rate in (0.001, 0.01)}
    rates = {one.adjustment: one.rate for one in found.results}
    assert rates == {name: fine_tuning_work.chosen(name, found.trials) for name in rates}
    assert len(found.answers) == 4 * (4 + 4)
    assert all(len(one.generated) == len(one.likeliest) == 2 for one in found.answers)
    assert {round(one.chance, 6) for one in found.answers} == {round(1 / 3, 6)}
    assert not list((finished / "runs").iterdir())


def test_alpha_changes_what_is_learnt_and_seeds_differ(finished: Path) -> None:
    found = {(one.run.name, one.steps): one.nll for one in Found.in_(finished).results}
    names = [f"clex-1x-1..L_2-{alpha}-seed{seed}" for alpha in ("alpha0", "alpha0.1", "kl-alpha10") for seed in (0, 1)]
    assert len({json.dumps(found[name, STEPS]) for name in names}) == 6
    assert found[names[0], 0] == found[names[1], 0]


def test_the_page_tells_of_all_of_it(finished: Path) -> None:
    page = (finished / "fine_tuning.md").read_text()
    lines = page.splitlines()
    assert lines[2].startswith("- **With alpha 0.1 to 0.3, long perplexity ")
    assert "Unfinished" not in page
    assert "- command: `as typed`" in page
    assert "trained on apple, birch, measured on cedar: 1 streams each of 512 tokens, in float32" in page
    for title in (
        "Before training",
        "Learning rates",
        "Tables 2 and 4",
        "Table 3",
        "Table 6",
        "Table 7",
        "Table 9",
        "Table 11",
        "Not in the paper: compared by the symmetric KL, trained at 1 x, equal steps",
        "Not in the paper: compared by the symmetric KL, trained at 1 x, equal compute",
    ):
        assert f"\n## {title}" in page
    assert "RedPajama-Book 5.88 (-3.9 %); PG19 7.3 (-2.0 %)" in page
    assert "| 4 x | " in page
    assert "48.2 -> 49.1 (+0.9)" in page
    assert "a step forwards as many tokens as without (256)" in page
    document = json.loads((finished / "fine_tuning.json").read_text())
    assert document["findings"][0] == lines[2].removeprefix("- ")
    rows = next(one for one in document["points"] if (one["adjustment"], one["alpha"]) == ("clex", 0.1))["measured"]
    assert [(row["steps"], row["against_steps"]) for row in rows] == [(1, 1), (2, 2), (1, 2), (4, 4), (3, 4)]
    # The cheaper of two steps is one, of which the first row speaks as well
    found = {(one.run.name, one.steps): one.nll for one in Found.in_(finished).results}
    apart = [
        found[f"clex-1x-1..L_2-alpha0.1-seed{seed}", 3][2][0] - found[f"clex-1x-1..L_2-alpha0-seed{seed}", 4][2][0]
        for seed in (0, 1)
    ]
    assert rows[-1]["ratio_to_alpha_0"]["4 x"]["value"] == pytest.approx(math.exp(sum(apart) / 2))
    ElementTree.fromstring((finished / "fine_tuning.svg").read_text())


def test_a_second_call_trains_nothing_and_other_settings_are_refused(
    model: str, library: dict[str, Path], finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fine_tuning_subject, "stages", few)
    monkeypatch.setattr(fine_tuning_page, "stages", few)
    monkeypatch.setattr(fine_tuning_work, "trained", None)
    before = (finished / "results.jsonl").read_text()
    fine_tuning.run(fine_tuning.Options(finished, asked(model, library), command="again"))
    assert (finished / "results.jsonl").read_text() == before
    for changes, message in (
        ({"steps": 8}, "was begun with another steps: 4 then, 8 now; give another --out"),
        ({"rates": (0.1,)}, "was begun with another rates"),
        ({"held_out": (library["birch"],), "books": (library["apple"],)}, "was begun with another books"),
    ):
        with pytest.raises(lw.BadInput, match=message):
            fine_tuning.run(fine_tuning.Options(finished, asked(model, library, **changes)))
    assert (finished / "results.jsonl").read_text() == before


def test_what_is_missing_is_told_and_the_page_needs_no_model(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fine_tuning_page, "stages", few)
    for name in ("settings.json", "trials.jsonl", "results.jsonl"):
        lines = (finished / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(line for line in lines if '"longqlora", "factor": 2, "sampling"' not in line))
    fine_tuning.run(fine_tuning.Options(tmp_path))
    page = (tmp_path / "fine_tuning.md").read_text()
    assert "**Unfinished**: 2 of 2 runs of Tables 3 and 10" in page
    assert "## Table 6" not in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: give a model, or --page"),
        (["--page"], "error: nothing is trained in"),
        (["MODEL"], "error: give the folder of bAbI's files: --babi FOLDER"),
        (["MODEL", "--babi", "."], "error: give novels to train on: --books FILE ..."),
        (["MODEL", "--babi", ".", "--books", "a"], "error: give novels to measure on: --held-out FILE ..."),
        (["MODEL", "--babi", ".", "--books", "a", "b", "--held-out", "b"], "error: "),
        (["MODEL", "--babi", ".", "--books", "a", "--held-out", "b", "--steps", "3"], "error: --steps must be at least 4"),
        (["MODEL", "--babi", ".", "--books", "a", "--held-out", "b", "--stages", "7"], "error: --stages must be from 1 to 6"),
        (["MODEL", "--babi", ".", "--books", "a", "--held-out", "b", "--rates", "0"], "error: --rates must be above 0"),
        (["MODEL", "--babi", ".", "--books", "a", "--held-out", "b"], "error: cannot read the text file a: No such file"),
        (["no/such/model", "--babi", ".", "--books", "a", "--held-out", "b"], "error: "),
    ],
)
def test_the_command_line_says_in_one_line_what_is_wrong(
    arguments: list[str], message: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [model if word == "MODEL" else word for word in arguments]
    assert fine_tuning.main([*words, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(message)
    assert not (tmp_path / "settings.json").exists()


def test_the_command_line_asks_for_what_it_says() -> None:
    words = ["m", "--books", "a", "b", "--held-out", "c", "--babi", "d", "--out", "o", "--stages", "2", "--minutes", "3"]
    options = fine_tuning.options_from(words)
    assert options.settings == Settings("m", (Path("a"), Path("b")), (Path("c"),), Path("d"), stages=2)
    assert (options.minutes, options.out) == (3, Path("o"))
    assert options.command == f"python -m experiments.output_alignment.fine_tuning {' '.join(words)}"
    assert len(options.settings.runs) == 66
    assert fine_tuning.options_from(["--page", "--out", "o"]).settings is None
