"""Run the notebooks and keep their outputs, as they are committed and shown on the site.

python -m scripts.run_notebooks [notebooks/long_t5.ipynb ...]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def run(path: Path) -> Any:
    """A notebook with the outputs of a fresh run; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}).execute()
    for cell in notebook.cells:
        cell.metadata.clear()  # times of execution, which differ from run to run
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def main() -> None:
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(NOTEBOOKS.glob("*.ipynb")):
        nbformat.write(run(path), path)


if __name__ == "__main__":
    main()
