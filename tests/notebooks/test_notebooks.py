"""The notebooks run from top to bottom, and are committed with the outputs and the figure of a run."""

from pathlib import Path

import nbformat
import pytest

from scripts.run_notebooks import NOTEBOOKS, run

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.notebook
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_as_much_as_when_it_was_committed(path: Path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOKS.parent / "src"))
    committed, fresh = nbformat.read(path, as_version=4), run(path)
    assert [_lines(cell) for cell in fresh.cells] == [_lines(cell) for cell in committed.cells]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_with_its_figure(path: Path):
    cells = nbformat.read(path, as_version=4).cells
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.get("outputs", ()))


def _lines(cell: nbformat.NotebookNode) -> list[int]:
    """How many lines each printed output of a cell has: numbers differ in their last digits from one processor to the next."""
    return [len(output["text"].splitlines()) for output in cell.get("outputs", ()) if output.get("name") == "stdout"]
