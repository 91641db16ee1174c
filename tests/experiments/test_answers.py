"""Temperatures fitted to answers, a whole run on a tiny T5 that reads bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments._lib.results import read
from experiments.answers.run import Options, run
from experiments.recommendation import run as recommendation
from lengthwise.errors import BadInput

# Whole runs, before a release; a model of random weights has little to gain
pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore:length 600")]


def test_every_fit_is_told_with_its_cost_and_asked_beside_the_plain_model(
    byte_t5: str, novels: tuple[Path, ...], tmp_path: Path
) -> None:
    long = tmp_path / "novel.txt"
    long.write_text("".join(novel.read_text() for novel in novels))
    fits = ("pmax-model", "answers-model", "answers-head", "answers-head:steps=5,regulariser=0,guard=0,task=passkey")
    asked: dict[str, Any] = {"tasks": ("passkey",), "fit_tasks": ("passkey",), "novel": long, "samples": 4, "sequences": 2}
    run(Options(byte_t5, (600,), tmp_path / "out", fits, **asked, train_length=512, name="tiny", command="as typed"))
    document = read(tmp_path / "out" / "tiny.json")
    assert {
        what: {n: sorted(by_method) for n, by_method in lengths.items()} for what, lengths in document["scores"].items()
    } == {what: {"600": sorted(["none", "truncate", *fits])} for what in ("passkey", "novel")}
    assert all(told["forwards"]["600"] > 0 and told["tau"]["600"] for told in document["fits"].values())
    page = (tmp_path / "out" / "tiny.md").read_text()
    assert "| `answers-head` |" in page
    assert "`python -m experiments.answers.run as typed`" in page


def test_a_novel_that_is_not_there_is_told_before_anything_is_fitted(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read the text file .*none\.txt"):
        run(Options("no model", (600,), tmp_path, novel=tmp_path / "none.txt"))


def test_a_recommendation_by_a_text_wants_another_to_compare_by(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="give both --text and --other-text"):
        recommendation.Options("embedded", (600,), tmp_path, text=tmp_path / "one.txt")
