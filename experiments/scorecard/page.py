"""The scorecard: every table, figure, theorem and claim of the three papers, with what was measured and the verdict.

Claims and the results they are held against are entries of the TOML files beside this module; README.md says how to add one.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from experiments._lib.keys import look_up
from experiments._lib.markdown import table, words_beside
from experiments._lib.results import read
from experiments.scorecard.verdict import Figure, figure, less, noisy, over, verdict, widened
from lengthwise.common.files import write_whole

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAPERS = ("attention_alignment", "output_alignment", "entropy_invariance")
VERDICTS = ("reproduced", "reduced", "refuted", "undecided", "not attempted")
# How a figure is printed: its factor, its form where that is not `_digits`, and the word after it
UNITS = {
    "points": (100, "{:+.1f}", " points"),
    "percent": (1, "{:+.1f}", " points"),
    "times": (1, "", " times"),
    "nats": (1, "{:+.3f}", " nats a token"),
    "": (1, "", ""),
}


@dataclass(frozen=True)
class Row:
    """A claim asked of one model, or of none."""

    item: str
    says: str
    paper: str  # what the paper measured
    model: str
    at: str  # task and length
    measured: str
    verdict: str
    page: str = ""  # path of the page that has more
    interval: bool = False
    corrected: str = ""  # the verdict, were the claim's figures on models of one training to decide together


def write_pages(results: Path, out: Path) -> None:
    """OUT/scorecard.md; `results` is not looked at, because claims name their files from the repository's root."""
    models = _toml("models")
    rows = {name: list(judged(_toml(name)["claim"], models)) for name in PAPERS}
    parts = ["# Scorecard", _about([row for own in rows.values() for row in own], models), _summary(rows, models)]
    for name in PAPERS:
        parts += [f"## {_toml(name)['title']}", _toml(name)["about"], _by_model(rows[name], models), _table(rows[name])]
    write_whole(out / "scorecard.md", "\n\n".join(parts) + "\n")


def judged(claims: Sequence[Mapping[str, Any]], models: Mapping[str, Any], root: Path = ROOT) -> Iterator[Row]:
    """A row for each result a claim is held against, models of other people first; one row where there is none."""
    order = list(models)
    for claim in claims:
        about = claim["item"], claim["says"], claim["paper"]
        if not claim.get("asked"):
            yield Row(*about, "", "", claim["why"], "not attempted")
        asked = sorted(claim.get("asked", []), key=lambda line: order.index(line["model"]))
        figures = Counter(models[line["model"]]["trained"] for line in asked)
        for line in asked:
            whole = {**claim, **line}
            found = measured(whole, root)
            one_of_many = widened(found, figures[models[line["model"]]["trained"]])
            said, corrected = (
                verdict(each, whole.get("above"), whole.get("below"), whole.get("own", False)) for each in (found, one_of_many)
            )
            page = whole.get("page", f"{Path(whole['file']).parent.parent}/README.md")
            shown = _shown(found, whole.get("unit", ""))
            yield Row(*about, line["model"], line["at"], shown, said, page, found.has_interval, corrected)


def measured(line: Mapping[str, Any], root: Path) -> Figure:
    """The figure that a line of a claim names."""
    document = _read(root / line["file"])
    one = look_up(document, line["key"])
    if "less" in line:
        found = less(one, look_up(document, line["less"]))
    else:
        found = over(one, look_up(document, line["over"])) if "over" in line else figure(one)
    return noisy(found, line["noise"]) if "noise" in line else found


def by_training(rows: Sequence[Row], models: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """Verdicts by who trained the model, in the order of `models`."""
    asked = sorted((row for row in rows if row.model), key=lambda row: list(models).index(row.model))
    found: dict[str, Counter[str]] = {}
    for row in asked:
        found.setdefault(models[row.model]["trained"], Counter())[row.verdict] += 1
    return found


def by_claim(rows: Sequence[Row]) -> dict[tuple[str, str], Counter[str]]:
    """Verdicts by claim, which is its item and what it says."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        found.setdefault((row.item, row.says), Counter())[row.verdict] += 1
    return found


def together(found: Mapping[str, int]) -> str:
    """What the verdicts on one claim come to; those that are undecided do not count beside one that is not."""
    holds, refuted = found["reproduced"] + found["reduced"], found["refuted"]
    if holds and refuted:
        return "both"
    return "holds" if holds else "refuted" if refuted else "undecided"


def sentence() -> str:
    """What the page comes to, for README: the claims asked of models that other people trained, and of all others."""
    models = _toml("models")
    claims = [row for name in PAPERS for row in judged(_toml(name)["claim"], models)]
    rows = [row for row in claims if row.model]
    whose = next(iter(by_training(rows, models)))
    others = [row for row in rows if models[row.model]["trained"] == whose]
    ours = [row for row in rows if models[row.model]["trained"] != whose]
    told = [_told(others, "models that other people trained"), _told(ours, "models of ours, or on formulae")]
    after = Counter(together(found) for found in by_claim(_as_corrected(others)).values())
    corrected = (
        f"Corrected for how many figures a claim has, {after['holds']} of the first hold and {after['refuted']} are refuted."
    )
    return " ".join([*told, f"{len(claims) - len(rows)} were not attempted.", corrected])


def _told(rows: Sequence[Row], whose: str) -> str:
    claims = by_claim(rows)
    found = Counter(map(together, claims.values()))
    both = f"{found['both']} in part, " if found["both"] else ""
    certain = {(row.item, row.says) for row in rows if row.interval and row.verdict in ("reproduced", "reduced")}
    bare = sum(together(verdicts) == "holds" and claim not in certain for claim, verdicts in claims.items())
    how = f"{bare} by a number without an interval" if bare else "each by a figure with an interval"
    holds = f"{found['holds']} hold ({how})"
    rest = f"{found['refuted']} are refuted, {both}{found['undecided']} are undecided"
    return f"Of {len(claims)} claims tested on {whose}, {holds}, {rest}."


def _corrected(rows: Sequence[Row], models: Mapping[str, Any]) -> str:
    """What the claims on models of other people come to, corrected for their figures' number, and which change."""
    whose = next(iter(by_training(rows, models)))
    others = [row for row in rows if row.model and models[row.model]["trained"] == whose]
    before, after = (
        {claim: together(found) for claim, found in by_claim(some).items()} for some in (others, _as_corrected(others))
    )
    told = Counter(after.values())
    changed = {claim: f"{before[claim]}, then {word}" for claim, word in after.items() if word != before[claim]}
    left = f"{told['holds']} hold, {told['refuted']} are refuted, {told['both']} in part, {told['undecided']} are undecided"
    return f"{left} ({'; '.join(f'{item}, {says}: {words}' for (item, says), words in changed.items()) or 'as above'})"


def _as_corrected(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, verdict=row.corrected) for row in rows]


def _about(rows: Sequence[Row], models: Mapping[str, Any]) -> str:
    asked = [row for row in rows if row.model]
    intervals = sum(row.interval for row in asked)
    used = {row.model for row in asked}
    lines = [f"- **{name}**, {model['trained']}: {model['what']}" for name, model in models.items() if name in used]
    numbers: dict[str, object] = {"rows": len(asked), "intervals": intervals, "chance": round(intervals / 40)}
    numbers["corrected"] = _corrected(rows, models)
    return str(words_beside(__file__)["about"].format(**numbers, models="\n".join(lines)))


def _summary(rows: Mapping[str, Sequence[Row]], models: Mapping[str, Any]) -> str:
    lines: list[list[object]] = []
    for name, own in rows.items():
        title = _toml(name)["title"]
        for whose, found in by_training(own, models).items():
            lines.append([title, whose, *(found[word] for word in VERDICTS[:-1]), ""])
        lines.append([title, "asked of none", *[""] * 4, sum(not row.model for row in own)])
    return table(["paper", "models", *VERDICTS], lines)


def _by_model(rows: Sequence[Row], models: Mapping[str, Any]) -> str:
    """Which claims hold on which model."""
    names = [name for name in models if any(row.model == name for row in rows)]
    verdicts = {name: by_claim([row for row in rows if row.model == name]) for name in names}
    lines = []
    for item, says in by_claim([row for row in rows if row.model]):
        words = (_counted(verdicts[name].get((item, says))) for name in names)
        lines.append([item, says, *words])
    return f"{words_beside(__file__)['by_model']}\n\n{table(['item', 'claim', *names], lines, numbers=False)}"


def _counted(found: Mapping[str, int] | None) -> str:
    """One word, or how many of each where figures of one claim differ."""
    if found is None or together(found) != "both":
        return "" if found is None else together(found)
    return f"holds {found['reproduced'] + found['reduced']}, refuted {found['refuted']}"


def _table(rows: Sequence[Row]) -> str:
    lines, before = [], ("", "", "")
    for row in rows:
        about = row.item, row.says, row.paper
        link = f"[page](../{row.page})" if row.page else ""
        where = ", ".join(filter(None, (row.model, row.at)))
        lines.append([*(("", "", "") if about == before else about), where, row.measured, f"**{row.verdict}**", link])
        before = about
    return table(["item", "claim", "paper", "asked of", "measured [95 %]", "verdict", ""], lines, numbers=False)


def _shown(found: Figure, unit: str) -> str:
    factor, form, word = UNITS[unit]
    value, low, high = (form.format(factor * end) if form else _digits(end) for end in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]{word}" if found.has_interval else f"{value}{word}, no interval"


def _digits(value: float) -> str:
    """Three decimals near 1, else three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}" if 0.1 <= abs(value) < 10 else f"{value:.3g}"


@cache
def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / f"{name}.toml").read_text())


@cache
def _read(file: Path) -> Any:
    return read(file)
