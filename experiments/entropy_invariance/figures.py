"""Draws Entropy Invariance's figures from what was measured, and perplexity against length, of which it has the numbers only.

    python -m experiments.entropy_invariance.figures --out runs/gau

Needs no model: OUT/<model>/losses.jsonl (train), peak.json (peak), figures.npz (matrices) and tables/cells.jsonl (tables) are
enough, and what is not there is left out. Writes OUT/figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments._lib.command import exit_status
from experiments._lib.draw import save
from experiments.entropy_invariance import curves, heatmaps, matrices
from experiments.entropy_invariance.cells import read_cells
from experiments.entropy_invariance.losses import read_losses
from experiments.entropy_invariance.tables import Call
from lengthwise.errors import BadInput

FORMATS = ("png", "svg")


def run(out: Path, name: str = Call.name, kind: str = FORMATS[0]) -> list[Path]:
    """The files that are written."""
    wanted: dict[str, Callable[[], Any]] = {}
    if losses := read_losses(out):
        wanted["figure_2_3"] = lambda: curves.figure_2_3(losses)
    if (file := out / "peak.json").is_file():
        document = json.loads(file.read_text())
        wanted["figure_4"] = lambda: curves.figure_4(document)
    if (file := out / matrices.FILE).is_file():
        with np.load(file) as kept:
            arrays = dict(kept)
        wanted |= {
            f"figure_{number}": (lambda draw=draw: draw(arrays))
            for number, draw in ((5, heatmaps.figure_5), (6, heatmaps.figure_6), (7, heatmaps.figure_7))
            if any(key.startswith(f"{number}-") for key in arrays)
        }
    if cells := {cell.key: cell for cell in read_cells(out / name)}:
        wanted["perplexity"] = lambda: curves.perplexities(cells)
    if not wanted:
        raise BadInput(f"nothing is measured in {out} yet: run train, tables, peak or matrices with --out {out} first")
    files = [out / "figures" / f"{one}.{kind}" for one in wanted]
    for file, draw in zip(files, wanted.values(), strict=True):
        save(draw(), file)
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of what was measured")
    parser.add_argument("--name", default=Call.name, help="folder of the tables within it")
    parser.add_argument("--format", dest="kind", choices=FORMATS, default=FORMATS[0])
    given: dict[str, Any] = vars(parser.parse_args())
    return exit_status(lambda: print(*run(**given), sep="\n"))


if __name__ == "__main__":
    sys.exit(main())
