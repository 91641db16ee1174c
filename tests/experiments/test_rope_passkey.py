"""Pass keys in long text, asked of a tiny Llama that answers with digits."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import lengthwise as lw
from experiments.rope_methods import passkey
from experiments.rope_methods.contenders import filled, split_aligned
from experiments.rope_methods.found import Found, recorded_as, section
from experiments.rope_methods.hiding import DEPTHS
from lengthwise.evaluation.sweep.generate import greedy_answers
from lengthwise.methods.spec import methods_of
from lengthwise.models.anatomy import anatomy_of
from lengthwise.records import Record, read_lines
from lengthwise.tasks import passkey as task
from tests.helpers.answering import TRAIN_LENGTH, answering, saved

SHORT, LONG, SAMPLES = TRAIN_LENGTH, 320, 6
METHODS = ("none", "streaming_llm", "yarn:factor={factor},temperature=false+{pmax-layer}", "truncate", "no_such_method")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(answering("llama"), tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file: Path = tmp_path_factory.mktemp("books") / "novel.txt"
    file.write_text("\n\n".join(f"Chapter {k}\n\nIt rained on day {k},\nand nobody came. The hen slept." for k in range(40)))
    return file


def options(model: str, out: Path, books: Path, *methods: str, **changes: Any) -> passkey.Options:
    given = {"lengths": (SHORT, LONG), "samples": SAMPLES, "books": (books,), "device": "cpu", "batch_tokens": 700}
    return passkey.Options(**{"model": model, "out": out, "methods": methods, "command": "as typed", **given, **changes})


@pytest.fixture(scope="module")
def out(model: str, books: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("asked")
    passkey.ask(options(model, folder, books, *METHODS))
    return folder


def records(out: Path) -> list[Record]:
    return read_lines(out / "passkey" / "run" / "records.jsonl", Record)


def test_all_contenders_are_methods() -> None:
    facts = anatomy_of(answering("llama")).facts
    for name in passkey.NAMES:
        base, _ = split_aligned(name)
        if base != "truncate":
            spec = filled(base, 2 * TRAIN_LENGTH, TRAIN_LENGTH)
            assert len(methods_of(spec, facts)) == (0 if spec == "none" else 1 + spec.count("+")), name


def test_every_depth_is_asked_in_turn_and_the_answer_fits_into_the_length(out: Path) -> None:
    plain = [one for one in records(out) if one.method == "none"]
    for length in (SHORT, LONG):
        some = sorted((one for one in plain if one.length == length), key=lambda one: one.index)
        assert [one.depth for one in some] == [*DEPTHS, DEPTHS[0]]
        assert len({one.target for one in some}) == SAMPLES
        assert all(0.98 * (length - task.ANSWER_TOKENS) <= one.tokens <= length - task.ANSWER_TOKENS for one in some)


def test_the_number_hides_in_the_books(model: str, books: Path, tmp_path: Path) -> None:
    run = passkey._begun(options(model, tmp_path, books, "none"))
    samples = run.task.samples(run.tokenizer, LONG, 5, 0)
    for sample, depth in zip(samples, DEPTHS, strict=True):
        before, after = sample.prompt.split(f"The pass key is {sample.target}. Remember it.")
        assert "The hen slept." in before + after
        # A sentence has about 20 bytes of the 100 that are left, so the number stands where it fits
        assert len(before.split(task.INTRODUCTION)[1]) == pytest.approx(depth * len(run_filler(sample.prompt)), abs=40)
    assert [one.prompt for one in run.task.samples(run.tokenizer, LONG, 2, 0)] == [one.prompt for one in samples[:2]]


def run_filler(prompt: str) -> str:
    inside = prompt.split(task.INTRODUCTION)[1].split(task.QUESTION)[0]
    first, last = inside.index("The pass key is"), inside.index("is the pass key.") + len("is the pass key.")
    return inside[:first] + inside[last:]


def test_answers_are_those_of_the_method(out: Path, model: str, books: Path) -> None:
    """Asked one by one, without a batch and without the sweep."""
    run = passkey._begun(options(model, out, books))
    samples = run.task.samples(run.tokenizer, LONG, SAMPLES, 0)
    bare = "yarn:factor=1.25,temperature=false"
    alignment = lw.Alignment.load(out / "passkey" / "alignments" / f"yarn-factor-1.25-temperature-false-pmax-layer-{LONG}.json")
    methods: dict[str, Any] = {
        "none": "none",
        "streaming_llm": "streaming_llm",
        f"{bare}+pmax-layer-{LONG}": [bare, alignment],
    }
    long = [one for one in records(out) if one.length == LONG]
    assert {one.method for one in long} == {*methods, "truncate"}
    for one in long:
        if one.index < 2 and one.method in methods:
            with lw.extend(run.model, methods[one.method]):
                ids = run.tokenizer(samples[one.index].prompt).input_ids
                (answer,) = greedy_answers(run.model, run.tokenizer, [ids], task.ANSWER_TOKENS)
            assert (one.prediction, one.score) == (answer, task.score(answer, one.target))
    said = {name: [one.prediction for one in long if one.method == name] for name in methods}
    assert said["none"] != said["streaming_llm"]


def test_up_to_the_training_length_an_alignment_is_not_calibrated_and_changes_nothing(out: Path) -> None:
    short = {one.method: one for one in records(out) if one.length == SHORT and one.index == 0}
    aligned = recorded_as(METHODS[2], SHORT, TRAIN_LENGTH)
    assert aligned == f"yarn:factor=1,temperature=false+pmax-layer-{SHORT}"
    assert short[aligned].prediction == short["none"].prediction
    assert [path.name for path in (out / "passkey" / "alignments").glob("*.json")] == [
        f"yarn-factor-1.25-temperature-false-pmax-layer-{LONG}.json"
    ]


def test_a_second_call_asks_only_what_is_missing_and_refusals_are_told(
    out: Path, model: str, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (out / "passkey" / "run" / "records.jsonl").read_text()
    asked: list[str] = []
    real = lw.evaluate

    def counted(model: Any, tokenizer: Any, methods: dict[str, object], *rest: Any, **more: Any) -> Any:
        asked.extend(methods)
        return real(model, tokenizer, methods, *rest, **more)

    monkeypatch.setattr(lw, "evaluate", counted)
    found = passkey.ask(options(model, out, books, *METHODS, "log"))
    assert asked == ["log", "log"]
    assert (out / "passkey" / "run" / "records.jsonl").read_text().startswith(before)
    assert found.missing == 0
    assert found.refused.keys() == {f"no_such_method at {n} tokens" for n in (SHORT, LONG)}
    assert "- `no_such_method at 320 tokens`: no method 'no_such_method'" in (out / "passkey" / "passkey.md").read_text()
    with pytest.raises(lw.BadInput, match="begun with another seed: 0 then, 1 now"):
        passkey.ask(options(model, out, books, "none", seed=1, samples=SAMPLES + 1))


def known(scores: dict[tuple[str, int], list[float]]) -> Found:
    """Answers with these scores, the depths in turn."""
    lines = {
        (name, length): [
            Record("m", name, "passkey", "", length, k, 0, length, DEPTHS[k % 5], "", "1", score, 0.1)
            for k, score in enumerate(row)
        ]
        for (name, length), row in scores.items()
    }
    return Found(lines, 5, 100, "as typed", 0, {"tasks": {"passkey": "the novel"}}, {})


def wilson(right: int, n: int) -> tuple[float, float]:
    """The values p at which `right` of n stand 1.96 standard deviations from p n: roots of a quadratic."""
    z2 = 1.959963984540054**2
    a, b, c = n + z2, -(2 * right + z2), right**2 / n
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def test_tables_are_means_with_wilsons_interval() -> None:
    found = known(
        {("none", 100): [1.0] * 5, ("none", 200): [1, 0, 0, 0, 1], ("none", 300): [1, 0, 0, 0, 0], ("log", 200): [0, 1, 1]}
    )
    low, high = wilson(2, 5)
    (score,) = (one for one in found.by_length() if (one.method, one.at) == ("none", 200))
    assert (score.mean, score.low, score.high, score.n) == pytest.approx((0.4, low, high, 5))
    depths = {(one.method, one.at): (one.mean, one.n) for one in found.by_depth()}
    assert depths["none", 0.1] == (1.0, 2)
    assert depths["none", 0.9] == (0.5, 2)
    assert depths["log", 0.1] == (0.0, 1)
    assert ("log", 0.9) not in depths
    about, table, _, by_depth = section(found)
    assert "stated twice in\nthe novel" in about
    assert table.splitlines()[0] == "| method | 100 | 200 | 300 |"
    few = wilson(2, 3)
    assert table.splitlines()[2] == (
        f"| `none` | 100 [{100 * wilson(5, 5)[0]:.0f}, 100] | 40 [{100 * low:.0f}, {100 * high:.0f}] "
        f"| 20 [{100 * wilson(1, 5)[0]:.0f}, {100 * wilson(1, 5)[1]:.0f}] |"
    )
    assert table.splitlines()[3] == f"| `log` |  | 67 [{100 * few[0]:.0f}, {100 * few[1]:.0f}, n 3] |  |"
    assert by_depth.splitlines()[0] == "| method | 0.1 | 0.3 | 0.5 | 0.7 | 0.9 |"


def test_the_command_line_asks_and_writes_a_page(
    model: str, books: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--length", "300", "--samples", "2", "--method", "none", "--books", str(books), "--out", str(tmp_path)]
    assert passkey.main([model, *given]) == 0
    captured = capsys.readouterr()
    assert "# Pass keys in long text" in captured.out
    assert "none at 300 tokens" in captured.err
    document = json.loads((tmp_path / "passkey" / "passkey.json").read_text())
    assert [(row["method"], row["at"], row["n"]) for row in document["by_length"]] == [("none", 300, 2)]
    assert document["missing"] == 0
    assert passkey.main([model, *given, "--method", "log", "--page"]) == 0
    assert "**Unfinished**: 2 answers are missing" in capsys.readouterr().out
    assert passkey.main([model, "--samples", "0", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "error: --samples must be at least 1, not 0"
    assert passkey.main([model, "--length", "100", "--method", "none", "--out", str(tmp_path / "few")]) == 2
    assert "has no room for the question" in capsys.readouterr().err
