"""Files of an earlier build (tests/data/old_build) are read, gone on with, and written again byte for byte.

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


def test_a_finished_run_is_left_as_it_is_and_grows_where_asked(old: Path, lengthwise: Callable[..., Said]) -> None:
    before = content(old / "run")
    same = (*EVALUATE, "--samples", 2, "--out", "run")
    for questions in (("--length", 600), ("--data", "questions.jsonl")):
        said = lengthwise(*same, *questions)
        assert said.status == 0, said.err
    assert content(old / "run") == before
    more = ("evaluate", "embedded", "--method", "none", "--task", "passkey", "--length", 600, "--samples", 3)
    assert lengthwise(*more, "--out", "run").status == 0
    after = content(old / "run")
    assert after["config.json"] == before["config.json"]
    assert after["records.jsonl"].startswith(before["records.jsonl"])
    assert len(after["records.jsonl"].splitlines()) == 21
    assert lengthwise("report", "run", "analysis", "--out", "page.html").status == 0
    other = lengthwise(*same, "--length", 600, "--seed", 1)
    assert (other.status, len(other.err)) == (2, 1)
    assert "run was begun with another seed: 0 then, 1 now" in other.err[0]


def test_the_config_of_a_new_run_has_the_old_text(old: Path, lengthwise: Callable[..., Said]) -> None:
    said = lengthwise(
        "evaluate", "embedded", "--method", "none", "--task", "passkey", "--length", 600, "--samples", 1, "--out", "new"
    )
    assert said.status == 0, said.err
    config = json.loads((old / "run" / "config.json").read_text())
    config |= {"methods": {"none": None}, "reads": {"none": "whole"}, "data": {}, "given": {}, "made_with": None}
    assert without_versions(old / "new" / "config.json") == json.dumps(config)


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
