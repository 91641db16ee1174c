"""Every page and figure is what its committed JSON says, and no experiment imports another."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from experiments import pages
from experiments._lib import page
from experiments._lib.markdown import MARKED
from experiments.against_truncation import page as against_truncation

# Every experiment; the trainings of T5s have no page of results
FOLDERS = (*pages.EXPERIMENTS, "embedded_model", "misalignment_lora")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def _rounded(content: str) -> str:
    """A drawing's numbers to a tenth: machines differ in the last digits of a curve."""
    return NUMBER.sub(lambda number: f"{float(number[0]):.1f}", content)


@pytest.mark.parametrize("name", pages.EXPERIMENTS)
def test_pages_are_what_their_results_say(name: str, tmp_path: Path) -> None:
    pages.write(name, tmp_path)
    written = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*"))
    assert written
    for path in written:
        committed = (pages.folder(name) / path).read_text()
        again = (tmp_path / path).read_text()
        if path.suffix == ".svg":
            assert _rounded(again) == _rounded(committed), path
        else:
            assert again == committed, path


def test_floors_and_ceilings_are_told() -> None:
    means = {"none": (0.0, 0.5, 0.1), "pmax-model": (0.05, 0.96, 0.97), "log": (0.04, 1.0, 0.3)}
    lengths = (512, 1024, 2048)
    cells = [
        {"task": "line", "length": n, "method": m, "mean": x}
        for m, row in means.items()
        for n, x in zip(lengths, row, strict=True)
    ]
    told = page.undecided(cells)
    assert "no method above 5%: line at 512\n" in told
    assert told.endswith("every temperature from 95%: line at 1,024")
    assert page.undecided(cells[2::3]) == ""


def test_an_interval_that_was_not_made_again_is_hollow_in_its_figure() -> None:
    pytest.importorskip("matplotlib")
    verdict = {"length": None, "difference": "+1.0 [-1.0, +3.0] points"}
    verdicts = [{**verdict, "task": "line"}, {**verdict, "task": "topic", "mark": "†"}]

    def drawn(some: list[dict[str, object]]) -> Any:
        return against_truncation._figure({"default": "log", "over": "none", "verdicts": some})

    figure = drawn(verdicts)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["line", "topic †"]
    (hollow,) = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert hollow.get_xydata().tolist() == [[1.0, 1.0]]
    assert figure.legends[0].get_texts()[0].get_text() == MARKED
    assert not drawn(verdicts[:1]).legends


def test_every_page_names_its_files_and_a_command_that_exists() -> None:
    for name in set(pages.EXPERIMENTS) - {"scorecard"}:
        for file in pages.folder(name).glob("*.md"):
            *_, last = file.read_text().splitlines()
            files, modules = re.findall(r"\]\((\S+\.json)\)", last), re.findall(r"experiments\.(\w+\.\w+)`", last)
            assert last.startswith(pages.MADE), file
            assert files, file
            assert modules, file
            assert all((file.parent / made_of).exists() for made_of in files), file
            assert all(pages.HERE.joinpath(*module.split(".")).with_suffix(".py").exists() for module in modules), file


def test_a_page_names_all_that_it_is_made_of_and_nothing_made_with_it() -> None:
    for name, page_of, of, without in (
        ("entropy_invariance", "tables", "models", "alone"),
        ("entropy_seeds", "seeds", "seed-2", "summary"),
        ("misalignment_perplexity", "misalignment_perplexity", "over_methods", "coefficients"),
        ("misalignment_lora", "misalignment_lora", "smollm2_135m-code", "changes"),
        ("decoders", "decoders", "stories15M", "compared"),
    ):
        last = (pages.folder(name) / f"{page_of}.md").read_text().splitlines()[-1]
        assert f"({of}.json)" in last, name
        assert f"({without}.json)" not in last, name


@pytest.mark.parametrize("path", sorted(pages.HERE.rglob("*.py")), ids=lambda path: str(path.relative_to(pages.HERE)))
def test_a_module_can_be_imported_and_says_what_it_is_for(path: Path) -> None:
    module = importlib.import_module(".".join(("experiments", *path.relative_to(pages.HERE).with_suffix("").parts)))
    assert module.__doc__ or path.name == "__init__.py"


def test_no_experiment_imports_another() -> None:
    for name in FOLDERS:
        for path in (pages.HERE / name).glob("*.py"):
            others = set(re.findall(r"(?:from|import) experiments\.(\w+)", path.read_text())) - {name, "_lib"}
            assert not others, f"{path} imports {others}"


def test_an_experiment_is_at_most_three_python_files() -> None:
    for name in FOLDERS:
        files = [path.name for path in (pages.HERE / name).glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= 3, (name, files)
