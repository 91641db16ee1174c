"""What `lengthwise recommend` says at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.cli import run
from lengthwise.methods.recipe import Recipe


@pytest.mark.parametrize(("method", "is_offered"), [("log", True), ("truncate", False)])
def test_a_recipe_is_offered_as_a_method_where_it_is_one(
    method: str, is_offered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = Recipe(method, (method,), 1024, 512, ("Said.",))
    monkeypatch.setattr("lengthwise.evaluation.recommendation.recommend.recommend", lambda *_, **__: recipe)
    assert run(["recommend", "embedded", "--length", "1024", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"lengthwise: written: {tmp_path / 'recipe.json'}; ")
    assert ("use it as --method @" in said) == is_offered
