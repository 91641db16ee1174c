"""Makes every page and figure of the experiments again from their committed results.

    python -m experiments.pages              all of them, in place
    python -m experiments.pages retrieval    one

An experiment takes part when `experiments/NAME/page.py` has `write_pages(results, out)`: it reads the JSON files in the folder
`results` and writes Markdown and SVG files to the folder `out`, under the same names they have in results/. The scorecard reads
the results of all others and goes to docs/. Every other page ends with what it is made of; where that is more than the files of
its own name, its module lists them in `MADE_OF`.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lengthwise.common.files import write_whole

HERE = Path(__file__).parent
MADE = "This page is made by"
EXPERIMENTS: tuple[str, ...] = (
    "retrieval",
    "questions",
    "code",
    "language_modelling",
    "dispersion",
    "against_truncation",
    "bits",
    "misalignment_perplexity",
    "misalignment_lora",
    "entropy_invariance",
    "entropy_seeds",
    "cosine_peak",
    "rope_perplexity",
    "decoders",
    "recommendation",
    "answers",
    "tuned_flan",
    "scorecard",
)


def folder(name: str) -> Path:
    """Where the pages of an experiment are."""
    return HERE.parent / "docs" if name == "scorecard" else HERE / name / "results"


def write(name: str, out: Path | None = None) -> None:
    """Writes the pages of one experiment, to its own folder unless `out` is given."""
    module, results = importlib.import_module(f"experiments.{name}.page"), HERE / name / "results"
    module.write_pages(results, out or folder(name))
    if name != "scorecard":
        for page in (out or results).glob("*.md"):
            if MADE not in (text := page.read_text()):
                write_whole(page, f"{text}\n{made(name, page.stem, getattr(module, 'MADE_OF', {}))}\n")


def made(name: str, stem: str, more: Mapping[str, Sequence[str]]) -> str:
    """What a page is made of and by which command: the files of its own name, or else all; `more` names others."""
    results = HERE / name / "results"
    files = sorted(file.stem for file in results.glob("*.json"))
    pages = {file.stem for file in results.glob("*.md")} - {stem}
    own = [file for file in files if file == stem or (file.startswith((f"{stem}.", f"{stem}-")) and file not in pages)]
    links = ", ".join(f"[{file}.json]({file}.json)" for file in [*own, *more.get(stem, ())] or files)
    readme = (HERE / name / "README.md").read_text()
    commands = re.findall(r"^    (python -m experiments\.\w+\.\w+)", readme, re.MULTILINE)
    commands = [command for command in commands if f".{name}." in command] or commands
    asked = ", ".join(f"`{command}`" for command in dict.fromkeys(commands))
    return f"{MADE} `python -m experiments.pages {name}` of {links}; to measure anew: {asked} ([README](../README.md))."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}; all if none")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in EXPERIMENTS]:
        parser.error(f"there is no experiment {unknown[0]!r}; there are {', '.join(EXPERIMENTS)}")
    for name in names or EXPERIMENTS:
        write(name)


if __name__ == "__main__":
    main()
