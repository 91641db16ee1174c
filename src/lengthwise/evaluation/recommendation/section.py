"""A recommendation as a section of a page: what it says, who raced, and what fresh answers told."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from lengthwise.common.formats import checked, read_json
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.recommendation.evidence import Confirmed, Raced
from lengthwise.evaluation.recommendation.measure import ShareRight, perplexity
from lengthwise.models.train_length import GIVEN
from lengthwise.report import Section
from lengthwise.report.article import Article, Block, Table
from lengthwise.report.formatting import percent

RECIPE = "recipe.json"
FORMAT = "lengthwise.recipe/1"  # that of methods/recipe.py, which needs torch


def recommendation_section(folder: Path) -> Section:
    """The section of a folder that `recommend` wrote."""
    path = folder / RECIPE
    try:
        document = read_json(path)
        require(document["format"] == FORMAT, f"its format is {document['format']!r}, not {FORMAT!r}")
        return _article(document).section("what to use at length")
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is damaged: {error}; ask `lengthwise recommend` again, into another --out") from None


def _article(recipe: dict[str, Any]) -> Article:
    evidence, provenance, shares = recipe["evidence"], recipe["provenance"], recipe["evidence"]["measure"] == ShareRight.name
    race = [checked(Raced, line) for line in evidence["race"]]
    fresh = [checked(Confirmed, line) for line in (*evidence["fresh"], *evidence["longer"])]
    model = str(provenance["model"]["name"]) or "this model"
    length, trained = int(recipe["length"]), int(recipe["train_length"])
    score = "right" if shares else "perplexity"
    return Article(
        model=model,
        question=f"What should {{}} use at {length:,} tokens?",
        title=f"What {{}} should use at {length:,} tokens",
        lead=f"Trained on {trained:,} tokens; tried on {', '.join(map(str, evidence['asked']))}.",
        findings=tuple(map(str, recipe["says"])),
        no_findings="This recommendation says nothing.",
        note="Only fresh answers are reported; those that chose the method are not among them.",
        blocks=(
            Block(
                "Fresh answers",
                "Mean and 95 % interval of answers that had no part in the choice.",
                Table(("method", "task", "tokens", score, "n"), tuple(_fresh_row(line, shares) for line in fresh)),
            ),
            Block(
                "The race",
                "All were asked the same, more from round to round, until they were out. These scores chose the method, "
                "so they flatter the best.",
                Table(("method", score, "n", "out"), tuple(_race_row(line, shares) for line in _ranked(race, shares))),
            ),
        ),
        facts=(
            ("model", model),
            *((key.replace("_", " "), str(value)) for key, value in provenance.items() if key not in ("model", "options")),
        ),
        command=_command(model, recipe),
    )


def _ranked(race: list[Raced], shares: bool) -> list[Raced]:
    """Methods that came furthest in the race first; of those that came equally far, the best first."""
    worst = -math.inf if shares else math.inf
    return sorted(race, key=lambda line: (-line.n, (-1 if shares else 1) * (worst if line.mean is None else line.mean)))


def _race_row(line: Raced, shares: bool) -> tuple[str, ...]:
    return line.method, _shown(line.mean, shares), str(line.n), line.out or ""


def _fresh_row(line: Confirmed, shares: bool) -> tuple[str, ...]:
    mean, low, high = (_shown(value, shares) for value in (line.mean, line.low, line.high))
    return line.method, line.task, f"{line.length:,}", f"{mean} ({low} to {high})", str(line.n)


def _shown(value: float | None, shares: bool) -> str:
    if value is None:
        return "not a number"
    return percent(value) if shares else perplexity(value)


def _command(model: str, recipe: dict[str, Any]) -> str:
    """The command that makes the same recommendation again."""
    provenance = recipe["provenance"]
    words = ["lengthwise", "recommend", model, "--length", str(recipe["length"]), *map(str, provenance.get("options", ()))]
    words += ["--train-length", str(recipe["train_length"])] if provenance.get("train_length") == GIVEN else []
    return shlex.join([*words, "--minutes", f"{provenance['minutes']:g}", "--seed", str(provenance["seed"]), "--out", "DIR"])
