"""Makes every page and figure of the experiments again from their committed results.

    python -m experiments.pages              all of them, in place
    python -m experiments.pages retrieval    one

An experiment takes part when `experiments/NAME/page.py` has `write_pages(results, out)`: it reads the JSON files in the folder
`results` and writes Markdown and SVG files to the folder `out`, under the same names they have in results/. The scorecard reads
the results of all others and goes to docs/.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
EXPERIMENTS: tuple[str, ...] = (
    "retrieval",
    "questions",
    "code",
    "language_modelling",
    "dispersion",
    "against_truncation",
    "bits",
    "misalignment_perplexity",
    "misalignment_loss",
    "entropy_invariance",
    "cosine_peak",
    "rope_perplexity",
    "decoders",
    "recommendation",
    "answers",
    "scorecard",
)


def folder(name: str) -> Path:
    """Where the pages of an experiment are."""
    return HERE.parent / "docs" if name == "scorecard" else HERE / name / "results"


def write(name: str, out: Path | None = None) -> None:
    """Writes the pages of one experiment, to its own folder unless `out` is given."""
    importlib.import_module(f"experiments.{name}.page").write_pages(HERE / name / "results", out or folder(name))


def main(names: Sequence[str]) -> None:
    for name in names or EXPERIMENTS:
        write(name)


if __name__ == "__main__":
    main(sys.argv[1:])
