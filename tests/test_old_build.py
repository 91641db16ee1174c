"""Files of an earlier build (tests/data/old_build) are read, written again byte for byte, and gone on with but for samples.

An alignment alone gains a key when it is written again, its digest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.analysis.records import ALIGNED, ANALYSIS, LENGTHS, Aligned, AtLength, read_analysis
from lengthwise.records import Record, RunDirectory, Sharpness, read_lines
from lengthwise.records.append_only import AppendOnly
from lengthwise.report.runs.group import read_run
from lengthwise.tasks import VERSION
from lengthwise.training.directory import TrainingDirectory
from tests.conftest import Said

OLD = Path(__file__).parent / "data" / "old_build"
ALIGNMENTS = [OLD / "embedded.json", *sorted((OLD / "alignments").glob("*.json"))]
METHODS = ("none", "truncate", "hedge", "@embedded.json", "log")
EVALUATE = ("evaluate", "embedded", *(word for spec in METHODS for word in ("--method", spec)), "--task", "passkey")
TRAIN = ("--train-length", 32, "--steps", 4, "--save-every", 2, "--warmup", 1, "--learning-rate", 0.01, "--device", "cpu")


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files, in which commands run."""
    shutil.copytree(OLD, tmp_path / "old")
    ByT5Tokenizer().save_pretrained(tmp_path / "old" / "llama")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def without_versions(path: Path) -> str:
    """A config's text, keys in their order, but for the versions of the packages that wrote it."""
    return json.dumps({**json.loads(path.read_text()), "made_with": None})


@pytest.mark.parametrize("path", ALIGNMENTS, ids=lambda path: path.stem)
def test_an_alignment_is_read_and_written_byte_for_byte_with_a_digest(path: Path, tmp_path: Path) -> None:
    alignment = lw.Alignment.load(path)
    alignment.save(tmp_path / "again.json")
    gained = f',\n  "digest": "{alignment.digest}"\n}}\n'
    assert (tmp_path / "again.json").read_text() == path.read_text().removesuffix("\n}\n") + gained
    assert lw.Alignment.load(tmp_path / "again.json") == alignment
    if path.parent.name == "alignments":
        assert path.stem == f"{alignment.statistic}_{alignment.scope}"
    last = alignment.temperatures[-1]
    torch.testing.assert_close(alignment.tau(last.length), torch.tensor(last.tau, dtype=torch.float64))


def test_a_run_of_the_same_content_is_written_byte_for_byte(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run", json.loads((OLD / "run" / "config.json").read_text()))
    run.records.append(read_lines(OLD / "run" / "records.jsonl", Record))
    run.sharpness.append(read_lines(OLD / "run" / "sharpness.jsonl", Sharpness))
    run.write_summary()
    assert content(tmp_path / "run") == content(OLD / "run")
    assert len(read_run(OLD / "run").records) == 20


def test_a_finished_run_is_read_but_takes_no_samples_that_are_made_otherwise_now(
    old: Path, lengthwise: Callable[..., Said]
) -> None:
    before = content(old / "run")
    same = (*EVALUATE, "--samples", 2, "--out", "run")
    said = lengthwise(*same, "--data", "questions.jsonl")
    assert said.status == 0, said.err
    assert lengthwise("report", "run", "analysis", "--out", "page.html").status == 0
    refusals = {(): "run holds samples that an earlier version made, and this one makes others; give another --out"}
    refusals["--seed", 1] = "run was begun with another seed: 0 then, 1 now"
    for options, complaint in refusals.items():
        refused = lengthwise(*same, "--length", 600, *options)
        assert (refused.status, len(refused.err)) == (2, 1)
        assert complaint in refused.err[0]
    assert content(old / "run") == before


def test_a_run_of_a_files_questions_alone_goes_on_with_samples(old: Path, lengthwise: Callable[..., Said]) -> None:
    config = json.loads((old / "run" / "config.json").read_text())
    (old / "run" / "config.json").write_text(json.dumps({**config, "tasks": {}}))
    records = [line for line in (old / "run" / "records.jsonl").read_text().splitlines() if '"questions.jsonl"' in line]
    (old / "run" / "records.jsonl").write_text("".join(f"{line}\n" for line in records))
    said = lengthwise(
        "evaluate", "embedded", "--method", "none", "--task", "passkey", "--length", 600, "--samples", 1, "--out", "run"
    )
    assert said.status == 0, said.err
    assert len((old / "run" / "records.jsonl").read_text().splitlines()) == len(records) + 1
    assert json.loads((old / "run" / "config.json").read_text())["samples"] == VERSION


def test_the_config_of_a_new_run_has_the_old_text(old: Path, lengthwise: Callable[..., Said]) -> None:
    said = lengthwise(
        "evaluate", "embedded", "--method", "none", "--task", "passkey", "--length", 600, "--samples", 1, "--out", "new"
    )
    assert said.status == 0, said.err
    config = json.loads((old / "run" / "config.json").read_text())
    config |= {"methods": {"none": None}, "reads": {"none": "whole"}, "data": {}, "given": {}, "made_with": None}
    new = json.loads(without_versions(old / "new" / "config.json"))
    assert new.pop("samples") == VERSION
    assert new["model"].pop("config")["vocab_size"] == "4096"
    assert json.dumps(new) == json.dumps(config)


def test_an_analysis_is_read_and_written_byte_for_byte(tmp_path: Path) -> None:
    text = (OLD / "analysis" / ANALYSIS).read_text()
    assert json.dumps(read_analysis(OLD / "analysis").to_json(), indent=1) + "\n" == text
    kinds: tuple[tuple[str, Any], ...] = ((LENGTHS, AtLength), (ALIGNED, Aligned))
    for name, kind in kinds:
        AppendOnly(tmp_path / name, kind).append(read_lines(OLD / "analysis" / name, kind))
        assert (tmp_path / name).read_bytes() == (OLD / "analysis" / name).read_bytes()


def test_a_training_run_goes_on_to_the_losses_of_an_undisturbed_one(old: Path, lengthwise: Callable[..., Said]) -> None:
    before = content(old / "training")
    losses = before["losses.jsonl"].splitlines()
    for out in ("training", "anew"):
        said = lengthwise("train", "llama", "--data", "prose.txt", "--out", out, *TRAIN)
        assert said.status == 0, said.err
    after = content(old / "training")
    assert after["config.json"] == before["config.json"]
    # Step 3 was taken after the last checkpoint, so it is taken again
    assert after["losses.jsonl"].splitlines()[:2] == losses[:2]
    resumed, undisturbed = (TrainingDirectory(old / out).read_losses() for out in ("training", "anew"))
    assert [list(line) for line in resumed] == [list(json.loads(losses[0]))] * 4
    for line, expected in zip(resumed, undisturbed, strict=True):
        assert line == pytest.approx(expected, rel=1e-4)
    asked = without_versions(old / "training" / "config.json").replace('"out": "training"', '"out": "anew"')
    assert without_versions(old / "anew" / "config.json") == asked


def test_a_table_that_was_edited_to_whole_numbers_stays_as_it_was_written(tmp_path: Path) -> None:
    alignment = lw.Alignment.load(OLD / "embedded.json")
    entry = replace(alignment.temperatures[0], tau=1, statistic=0)
    replace(alignment, temperatures=(entry,)).save(tmp_path / "one.json")
    lw.Alignment.load(tmp_path / "one.json").save(tmp_path / "two.json")
    assert '"tau": 1,' in (tmp_path / "two.json").read_text()
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
