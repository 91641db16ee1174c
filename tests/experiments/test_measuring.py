"""What is measured once and kept, on retrieval and dispersion with a tiny T5 that reads bytes and answers digits."""

from __future__ import annotations

import json
import signal
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ByT5Tokenizer

import lengthwise as lw
from experiments._lib import held_out, retrieval_tasks
from experiments._lib.measure import Answers
from experiments._lib.minutes import TimeIsUp, at_most
from experiments._lib.results import unfinished
from experiments.dispersion import run as dispersion
from experiments.entropy_invariance.train import Loss
from experiments.retrieval import run as retrieval
from lengthwise.analysis.measurements import at_length
from lengthwise.analysis.records import read_analysis
from lengthwise.common.text import shipped_prose
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load
from lengthwise.records import Record
from lengthwise.records.append_only import AppendOnly

# Whole runs, before a release
pytestmark = pytest.mark.sweep

TOKENIZER = ByT5Tokenizer()
TRAIN, LONG = 512, 600
METHODS = ("none", "pmax-model", "pmax-layer")
# A part of that, for what is done several times
FEW = {"methods": ("none", "pmax-model"), "tasks": ("passkey-novels", "line")}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A held-out novel, one that training reads, and official cases of two lines."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "gutenberg").mkdir()
    (folder / "gutenberg" / "pride_1.txt").write_text(shipped_prose()[60000:].replace(" the ", " Netherfield "))
    (folder / "gutenberg" / "novel_2.txt").write_text("Seen in training. " * 90)
    prompts = [
        f"A record:\nline a-b: REGISTER_CONTENT is <{n}>\nline c-d: REGISTER_CONTENT is <7>\nWhich number is in line a-b?"
        for n in range(3)
    ]
    cases = [{"prompt": p, "expected_number": n, "num_lines": 2, "random_idx": ["a-b", 0]} for n, p in enumerate(prompts)]
    (folder / "2_lines.jsonl").write_text("\n".join(map(json.dumps, cases)))
    return folder


def options(model: str, out: Path, **changes: Any) -> retrieval.Options:
    given = {"lengths": (TRAIN, LONG), "calibrate": (LONG,), "samples": 2, "methods": METHODS, "device": "cpu"}
    return retrieval.Options(**{"out": out, "model": model, "command": "as typed", **given, **changes})


@pytest.fixture(scope="module")
def finished(byte_t5: str, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    retrieval.retrieval(options(byte_t5, out, data=data, longeval=(data / "2_lines.jsonl",)))
    return out


def untimed(out: Path, few: bool = False) -> list[Record]:
    """All records under the names of our tables, or those that `FEW` would have."""
    found = [replace(record, seconds=0.0) for record in Answers.read(out, TRAIN, retrieval_tasks.RUNS).records]
    kept = [r for r in found if not few or (r.method in FEW["methods"] and r.task in FEW["tasks"])]
    return sorted(kept, key=lambda record: record.key)


def test_samples_are_made_of_what_training_never_saw(data: Path) -> None:
    by_name = {one.name: one for one in retrieval_tasks.asked((), data)}
    assert list(by_name) == [*retrieval_tasks.TASKS]
    lines = by_name["line"].make(TOKENIZER, 2000, 2, 0)
    names = [line.split()[1].strip(":") for sample in lines for line in sample.prompt.split("\n") if line.startswith("line ")]
    assert len(names) > 50
    assert all(held_out.word(word) for name in names for word in name.split("-"))
    assert all(held_out.label(sample.target) for sample in by_name["topic"].make(TOKENIZER, 900, 8, 0))
    novels = by_name["passkey-novels"].make(TOKENIZER, 60000, 1, 0)[0].prompt
    assert "Netherfield" in novels
    assert "Seen in training" not in novels
    assert len({one.material for one in by_name.values()}) == 5


def test_what_another_process_works_at_is_passed_over(tmp_path: Path) -> None:
    lines = AppendOnly(tmp_path / "lines.jsonl", Loss)
    lines.append([Loss(1, "held out", 0.5)])
    groups = [[(1, "held out"), (2, "held out")], [(1, "held out")], [(3, "held out")]]
    assert list(unfinished(lines, groups)) == [[(2, "held out")], [(3, "held out")]]
    # A group stays claimed while its keys are worked at
    for missing in unfinished(lines, groups[:1]):
        assert missing == [(2, "held out")]
        assert list(unfinished(AppendOnly(lines.path, Loss), groups)) == [[(3, "held out")]]


def test_time_is_up_even_where_exceptions_are_swallowed() -> None:
    before = signal.getsignal(signal.SIGALRM)

    def stubborn() -> None:
        for _ in range(100):
            with suppress(Exception):
                time.sleep(0.1)

    with pytest.raises(TimeIsUp), at_most(0.05 / 60):
        stubborn()
    assert signal.getsignal(signal.SIGALRM) is before
    with at_most(0.02 / 60):
        pass
    time.sleep(0.05)


def test_every_method_is_calibrated_evaluated_and_told_of(finished: Path, data: Path) -> None:
    document = json.loads((finished / "retrieval.json").read_text())
    cells = {(cell["method"], cell["task"], cell["data"], cell["length"]): cell for cell in document["cells"]}
    tasks = ("passkey-novels", "passkey", "line", "topic", "line-told", "ruler_niah_multikey_1")
    expected = {(method, task, "", length) for method in METHODS for task in tasks for length in (TRAIN, LONG)}
    official = {key for key in cells if key[2]}
    assert cells.keys() - official == expected
    assert {(key[0], key[1], key[2]) for key in official} == {(method, "line", "2_lines.jsonl") for method in METHODS}
    assert all(cell["n"] == 2 for cell in cells.values())
    assert document["missing"] == 0
    assert document["temperatures"].keys() == {"log", "pmax-model", "pmax-layer"}
    taus = {name: row[str(LONG)] for name, row in document["temperatures"].items()}
    assert [len(taus[name]) for name in ("log", "pmax-model", "pmax-layer")] == [1, 1, 2]
    saved_tau = lw.Alignment.load(finished / "pmax-model.json").tau(LONG)
    assert taus["pmax-model"][0] == pytest.approx(float(saved_tau))
    # Calibrated on one text, run on another: what they were run with is in the run directory
    config = json.loads((finished / "run" / "config.json").read_text())
    # A file of its own has a digest as well
    assert config["methods"]["pmax-layer"].items() <= json.loads((finished / "pmax-layer.json").read_text()).items()
    assert "pride_1" in json.loads((finished / "run-novels" / "config.json").read_text())["tasks"]["passkey"]


def test_stopped_in_time_and_gone_on_it_is_the_undisturbed_one(
    finished: Path, byte_t5: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lengthwise.evaluation.sweep import cells

    real, calls = cells.greedy_answers, []

    def slow(*arguments: Any) -> list[str]:
        calls.append(arguments)
        if len(calls) == 3:
            # What a timer would do, at a moment that is known
            signal.raise_signal(signal.SIGALRM)
        return real(*arguments)

    monkeypatch.setattr(cells, "greedy_answers", slow)
    wanted = partial(options, byte_t5, tmp_path, data=data, longeval=(data / "2_lines.jsonl",), **FEW)
    retrieval.retrieval(wanted(minutes=60))
    stopped = json.loads((tmp_path / "retrieval.json").read_text())
    assert sum(cell["n"] for cell in stopped["cells"]) < stopped["missing"]
    retrieval.retrieval(wanted())
    assert untimed(tmp_path) == untimed(finished, few=True)


def test_dispersion_is_the_mean_over_layers_heads_rows_and_samples(finished: Path, byte_t5: str, tmp_path: Path) -> None:
    made = [finished / f"{name}.json" for name in ("pmax-model", "pmax-layer")]
    for path in made:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    methods = ("none", "pmax-model", "pmax-layer")
    given = {"methods": methods, "tasks": ("line", "topic"), "lengths": (TRAIN, LONG), "calibrate": (LONG,), "samples": 2}
    call = dispersion.Options(model=byte_t5, out=tmp_path, device="cpu", **given)
    cells = {(cell["task"], cell["length"], cell["method"]): cell for cell in dispersion.dispersion(call)}
    assert len(cells) == 2 * 2 * 3
    weights, _ = load(byte_t5, device="cpu")
    samples = retrieval_tasks.asked(["line"], None)[0].make(TOKENIZER, LONG, 2, 0)
    alignment = lw.Alignment.load(finished / "pmax-model.json")
    for name, method in (("none", "none"), ("pmax-model", alignment)):
        stats = [lw.row_statistics(weights, TOKENIZER(one.prompt, return_tensors="pt"), method=method) for one in samples]
        cell = cells["line", LONG, name]
        assert cell["pmax"] == pytest.approx(float(torch.stack([s.p_max for s in stats]).mean()), rel=1e-5)
        assert cell["entropy"] == pytest.approx(float(torch.stack([s.entropy for s in stats]).mean()), rel=1e-5)
        assert cell["entropy_by_text"] == pytest.approx([float(s.entropy.mean()) for s in stats], rel=1e-5)
        assert cell["pmax_by_layer"] == pytest.approx(torch.stack([s.p_max for s in stats]).mean((0, 2)).tolist(), rel=1e-5)
    assert cells["line", LONG, "pmax-model"]["pmax"] > cells["line", LONG, "none"]["pmax"]
    assert cells["line", TRAIN, "pmax-model"]["pmax"] == cells["line", TRAIN, "none"]["pmax"]
    assert (tmp_path / "pmax-model.json").read_bytes() == made[0].read_bytes()
    logits = {(row["task"], row["length"]): row for row in json.loads((tmp_path / "dispersion.json").read_text())["logits"]}
    assert logits.keys() == {(task, length) for task in ("line", "topic") for length in (TRAIN, LONG)}
    texts = [TOKENIZER(sample.prompt, return_tensors="pt").input_ids for sample in samples]
    tops = [at_length(weights, anatomy_of(weights), text).top for text in texts]
    assert logits["line", LONG]["top_by_text"] == pytest.approx(tops)
    assert logits["line", LONG]["top"] == pytest.approx(sum(tops) / 2)
    (solved, _) = json.loads((tmp_path / "dispersion.json").read_text())["temperatures"]
    assert (solved["task"], solved["length"]) == ("line", LONG)
    for text, tau in zip(texts, solved["pmax"], strict=True):
        alone = lw.calibrate(weights, None, text.shape[1], input_ids=text, show_progress=False)
        assert tau == pytest.approx(float(alone.tau(text.shape[1])))
    assert f"| line | {logits['line', TRAIN]['top']:.2f} (" in (tmp_path / "dispersion.md").read_text()


def test_analyses_add_new_lengths(byte_t5: str, tmp_path: Path) -> None:
    given = {"analyse": True, "texts": ("line",), "train_length": 64, "device": "cpu"}
    for lengths in ((64, 80), (64, 80, 96)):
        dispersion.dispersion(dispersion.Options(model=byte_t5, out=tmp_path, lengths=lengths, **given))
    assert [length.length for length in read_analysis(tmp_path / "analysis-line").lengths] == [64, 80, 96]
