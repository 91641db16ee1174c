"""A recommendation on a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli.report import write_report
from lengthwise.errors import BadInput
from lengthwise.methods.recipe import Recipe
from tests.report.test_page import Tags


def written(folder: Path, measure: str, mean: float | None = 0.75, **provenance: str) -> Path:
    folder.mkdir()
    race = [
        {"method": "log", "mean": 0.25, "n": 16, "out": "behind the first"},
        {"method": "none", "mean": mean, "n": 64, "out": None},
        {"method": "yarn:factor=4", "mean": 0.875, "n": 64, "out": None},
    ]
    cell = {"task": "passkey", "low": 0.5, "high": 1.0, "n": 32}
    fresh = [{"method": "none", "length": 2048, "mean": 0.25, **cell}]
    longer = [{"method": "yarn:factor=4", "length": 4096, "mean": 0.5, **cell}]
    evidence = {"asked": ["passkey"], "measure": measure, "race": race, "fresh": fresh, "longer": longer}
    told = {"model": {"name": "made-up"}, "seed": 3, "minutes": 5.0, "options": ["--task", "passkey"], **provenance}
    recipe = Recipe("yarn:factor=4", ("yarn:factor=4",), 2048, 512, ("Use <yarn>.", "It gains."), evidence, told)
    recipe.save(folder / "recipe.json")
    return folder


def test_a_page_tells_a_recommendation(tmp_path: Path) -> None:
    out = write_report([written(tmp_path / "one", "share right")], tmp_path / "page.html")
    text = Tags(out.read_text()).text
    assert "What should made-up use at 2,048 tokens?" in text
    assert "Use <yarn>." in text
    assert "lengthwise recommend made-up --length 2048 --task passkey --minutes 5 --seed 3 --out DIR" in text
    tables = (tmp_path / "page.md").read_text().replace("\\", "").replace("\u00a0", " ")
    assert "| yarn:factor=4 | passkey | 4,096 | 50 % (50 % to 100 %) | 32 |" in tables
    # Those that were asked most first
    rows = [line for line in tables.split("## The race")[1].splitlines() if line.startswith("|")][2:]
    assert rows == ["| yarn:factor=4 | 88 % | 64 |  |", "| none | 75 % | 64 |  |", "| log | 25 % | 16 | behind the first |"]


@pytest.mark.parametrize(("source", "words"), [("as given", " --train-length 512"), ("as its config says", "")])
def test_the_command_has_a_training_length_that_was_given(tmp_path: Path, source: str, words: str) -> None:
    out = write_report([written(tmp_path / "one", "share right", train_length=source)], tmp_path / "page.html")
    assert f"--task passkey{words} --minutes 5" in Tags(out.read_text()).text


def test_texts_are_told_in_perplexity(tmp_path: Path) -> None:
    out = write_report([written(tmp_path / "one", "nats a token", mean=None)], tmp_path / "page.html")
    rows = [line for line in out.with_suffix(".md").read_text().split("## The race")[1].splitlines() if line.startswith("|")]
    # The most likely text first, one without a number last
    assert [row.replace("\\", "").split(" | ")[:2] for row in rows[2:]] == [
        ["| yarn:factor=4", "2.399"],
        ["| none", "not a number"],
        ["| log", "1.284"],
    ]
    assert "1.284 (1.649 to 2.718)" in out.with_suffix(".md").read_text()


@pytest.mark.parametrize(
    "damage",
    [
        {"evidence": {}},
        {"evidence": {"measure": "x", "race": [3]}},
        {"provenance": 4},
        {"format": "lengthwise.recipe/2"},
    ],
)
def test_a_damaged_recipe_is_one_line(tmp_path: Path, damage: dict[str, Any]) -> None:
    path = written(tmp_path / "one", "share right") / "recipe.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(BadInput, match=r"recipe\.json is damaged: .*; ask `lengthwise recommend` again"):
        write_report([tmp_path / "one"], tmp_path / "page.html")
