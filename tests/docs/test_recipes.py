"""The scripts of docs/recipes run as they stand, on random or shipped weights."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
QUICK = ("protein_embeddings", "text_encoder")
SCRIPTS = [path.stem for path in sorted(RECIPES.glob("*.py")) if path.stem != "beside_stock"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.sweep) for name in SCRIPTS])
def test_a_recipe_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.syspath_prepend(str(RECIPES))
    runpy.run_path(str(RECIPES / f"{name}.py"), run_name="__main__")
    assert "as it is" in capsys.readouterr().out


def test_every_recipe_has_a_page_that_names_its_script() -> None:
    for name in SCRIPTS:
        assert f"]({name}.py)" in (RECIPES / f"{name}.md").read_text()


def test_a_fasta_file_is_read_and_batched_by_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))
    recipe = runpy.run_path(str(RECIPES / "protein_embeddings.py"))
    file = tmp_path / "two.fasta"
    file.write_text(">short one\nMKU*\n>long\nMKVA\nLLG\n>empty\n\n>mid\nMKVA\n")
    proteins = recipe["read_fasta"](file)
    assert proteins == {"short": "MKX", "long": "MKVALLG", "mid": "MKVA"}
    assert list(recipe["batches"](proteins, 8)) == [["long"], ["mid"], ["short"]]
    assert list(recipe["batches"](proteins, 30)) == [["long", "mid", "short"]]
    file.write_text("MKVA\n")
    assert recipe["read_fasta"](file) == {"two": "MKVA"}
    file.write_text(">one\nMKVA\n>one\nMK\n")
    with pytest.raises(SystemExit, match="two proteins one"):
        recipe["read_fasta"](file)
