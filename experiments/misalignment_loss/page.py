"""Runs compared in pairs, and the page made of the results: every table with the paper's numbers beside ours.

    d_s = mean over streams and lengths of (nll - nll of the other), of seed s        ratio = exp(mean d_s)

Both runs of a seed have seen the same rows in the same order, so they are compared in pairs; the 95 % interval is Student's
over the seeds. It is wide for three of them, and speaks of these streams.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table, words_beside
from lengthwise.common.files import write_whole

RESULTS, PAGE, FIGURE = (f"misalignment_loss.{ending}" for ending in ("json", "md", "svg"))
TABLES = "tables.json"  # what the results leave out: before training, ranges of e, techniques alone, misalignment
LENGTHS = (1, 2, 4, 8)  # at which perplexity is measured, in the model's own training lengths
LONG = LENGTHS[1:]
SAMPLING = "1..L/2"

Perplexities = Sequence[float]  # after 50, 100 and 200 steps
PAPER = json.loads(Path(__file__).with_name("paper.json").read_text())
_RANGES = [(("longqlora", 2, sampling, "sce"), 0.1) for sampling in PAPER["5"]]
_ALONE = [
    ((name, 2, SAMPLING, "sce"), alpha) for name, alpha in (("none", 0.0), ("longqlora", 0.0), ("eabf", 0.0), ("none", 0.1))
]
WORDS = words_beside(__file__)
CHANGES = ("change at 2 x", "change over 2 x to 8 x", "lower on", "paper")
HEAD = ("adjustment", "alpha", "steps", *(f"{factor} x" for factor in LENGTHS), *CHANGES)
ANSWERS = ("written, alpha 0", "0.1", "more", "likeliest, alpha 0", "0.1", "more", "chance", "paper")

Numbers = Mapping[str, Any]
Line = list[object]


@dataclass(frozen=True)
class Mean:
    """The mean of a few values, one a seed, with Student's interval."""

    value: float
    low: float | None  # ends of its 95 % interval; None of a single value
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        from scipy.stats import t

        centre, n = fmean(values), len(values)
        if n == 1:
            return cls(centre, None, None)
        half = float(t.ppf(0.975, n - 1)) * stdev(values) / math.sqrt(n)
        return cls(centre, centre - half, centre + half)


@dataclass(frozen=True)
class Point:
    """Runs of all seeds after so many steps."""

    setting: Any  # run.Setting
    alpha: float
    steps: int

    @property
    def without(self) -> Point:
        """The same with alpha 0."""
        return Point(self.setting.without, 0.0, self.steps)


class Outcome:
    """All results of a run, by what they are of; a result is a line of results.jsonl."""

    def __init__(self, results: Sequence[tuple[Point, Numbers]]) -> None:
        self._of: dict[Point, dict[int, Numbers]] = {}
        for point, result in results:
            self._of.setdefault(point, {})[result["seed"]] = result

    @property
    def settings(self) -> list[Any]:
        return list(dict.fromkeys(point.setting for point in self._of))

    def last(self, steps: int) -> list[float]:
        """Seconds of the finished runs."""
        return [result["seconds"] for point, own in self._of.items() if point.steps == steps for result in own.values()]

    def results(self, point: Point) -> dict[int, Numbers]:
        return self._of.get(point, {})

    def perplexity(self, point: Point) -> dict[str, float | None]:
        """At every length over all seeds and streams; None where a run is not finite."""
        streams = {factor: [_streams(one, factor) for one in self.results(point).values()] for factor in LENGTHS}
        return {f"{n} x": math.exp(fmean(map(fmean, own))) if own and all(own) else None for n, own in streams.items()}

    def ratio(self, point: Point, other: Point, factors: Sequence[int] = LONG) -> dict[str, Any] | None:
        """One's perplexity over the other's, of the seeds that both have; None where there is none, or a loss is infinite."""
        differences, lower = [], []
        for seed, ours in self.results(point).items():
            theirs = self.results(other).get(seed)
            if theirs is None:
                continue
            pairs = [(_streams(ours, factor), _streams(theirs, factor)) for factor in factors]
            if not all(a and b for a, b in pairs):
                return None
            apart = [[x - y for x, y in zip(a, b, strict=True)] for a, b in pairs]
            differences.append(fmean(map(fmean, apart)))
            lower += [fmean(stream) < 0 for stream in zip(*apart, strict=True)]
        if not differences:
            return None
        mean = Mean.of(differences)
        value, low, high = (None if end is None else math.exp(end) for end in (mean.value, mean.low, mean.high))
        return {"value": value, "low": low, "high": high, "seeds": len(differences), "lower": fmean(lower)}

    def ratios(self, point: Point, other: Point) -> dict[str, Any]:
        """At every length, and over all long ones."""
        lengths: list[tuple[str, Sequence[int]]] = [*((f"{factor} x", (factor,)) for factor in LENGTHS), ("long", LONG)]
        return {name: self.ratio(point, other, factors) for name, factors in lengths}

    def difference(self, point: Point, other: Point, name: str) -> Mean | None:
        """`sce` or `kl`, one less the other, over the seeds that both have."""
        theirs = self.results(other)
        pairs = [(ours[name], theirs[seed][name]) for seed, ours in self.results(point).items() if seed in theirs]
        values = [a - b for a, b in pairs if a is not None and b is not None]
        return Mean.of(values) if values and len(values) == len(pairs) else None


def _streams(result: Numbers, factor: int) -> list[float]:
    return list(result["nll"][LENGTHS.index(factor)])


def points(outcome: Outcome, last: int) -> list[dict[str, Any]]:
    """Every setting and alpha after all steps it was measured at, against alpha 0: what results keep."""
    entries = []
    for setting in outcome.settings:
        for alpha in setting.alphas:
            rows = []
            for mark in (last // 4, last // 2, last):
                for steps in dict.fromkeys((mark, max(1, mark * 95 // 100))):
                    point, other = Point(setting, alpha, steps), Point(setting, alpha, mark).without
                    if outcome.results(point):
                        about = {"steps": steps, "against_steps": mark, "perplexity": outcome.perplexity(point)}
                        rows.append({**about, "ratio_to_alpha_0": outcome.ratios(point, other)})
            entries.append({**asdict(setting), "alpha": alpha, "measured": rows})
    return entries


def further(outcome: Outcome, last: int) -> dict[str, Any]:
    """What `points` leave out: perplexity before training, comparisons with other runs than alpha 0, and misalignment."""
    before, misaligned, against = {}, [], []
    for setting in outcome.settings:
        if setting.sampling == SAMPLING and outcome.results(Point(setting, 0.0, 0)):
            before[setting.label] = outcome.perplexity(Point(setting, 0.0, 0))
        for alpha in setting.alphas:
            point = Point(setting, alpha, last)
            means = {name: [one[name] for one in outcome.results(point).values()] for name in ("sce", "kl")}
            if all(values and None not in values for values in means.values()):
                less = {f"{name}_less": outcome.difference(point, point.without, name) for name in means}
                told = {name: asdict(mean) if mean and alpha else None for name, mean in less.items()}
                own = {name: fmean(values) for name, values in means.items()}
                misaligned.append({"trained": setting.label, "alpha": alpha, **own, **told})
    settings = {(one.adjustment, one.factor, one.sampling, one.compare): one for one in outcome.settings}
    for wanted, base in ((_RANGES, _RANGES[0]), (_ALONE, _ALONE[0])):
        for key, alpha in wanted:
            for mark in (last // 4, last // 2, last):
                if {key, base[0]} <= set(settings) and (key, alpha) != base:
                    one, other = Point(settings[key], alpha, mark), Point(settings[base[0]], base[1], mark)
                    about = {"setting": list(key), "alpha": alpha, "steps": mark, "table": "5" if wanted is _RANGES else "11"}
                    against.append({**about, "ratios": {k: outcome.ratios(one, other)[k] for k in ("2 x", "long")}})
    return {"before": before, "against": against, "misalignment": misaligned}


def write_pages(results: Path, out: Path) -> None:
    """The page and its chart, from RESULTS/misalignment_loss.json and tables.json."""
    document = json.loads((results / RESULTS).read_text())
    draw.save(chart(document), out / FIGURE)
    write_whole(out / PAGE, page(document, json.loads((results / TABLES).read_text())))


def page(document: Numbers, extra: Numbers) -> str:
    parts = ["# Does the misalignment loss help in fine-tuning? (Output Alignment, Tables 2 to 7 and 9 to 11, in small)"]
    parts += [_about(document["settings"]), WORDS["about"]]
    if document["cost"]:
        parts.append(WORDS["cost"].format(**document["cost"]))
    parts.append(f"![Perplexity by alpha]({FIGURE})")
    rates = sorted({trial["rate"] for trial in document["trials"]})
    lengths = [f"{factor} x" for factor in LENGTHS]
    equal = _against_alpha_0(document, equal_compute=False)
    cheaper = _against_alpha_0(document, equal_compute=True)
    misaligned = ["trained", "alpha", "L_misalign", "KL", "L_misalign less alpha 0's", "KL less alpha 0's"]
    spread = [cell for cell in document["answers"] if cell["depth"] is None]
    deep = [cell for cell in document["answers"] if cell["depth"] is not None]
    kl = "Not in the paper: compared by the symmetric KL, trained at 1 x, equal"
    sections: list[tuple[str, Sequence[object], list[Line]]] = [
        ("Before training", ["method", *lengths], [[k, *map(_number, row.values())] for k, row in extra["before"].items()]),
        ("Learning rates: perplexity at 2 x on text held back, alpha 0", ["adjustment", *rates], _rates(document["trials"])),
        ("Tables 2 and 4: trained at 1 x, equal steps", HEAD, equal(1, "sce", _clex(PAPER["2 and 4"]))),
        ("Table 3: trained at 2 x, equal steps", HEAD, equal(2, "sce", _by_adjustment(PAPER["3"]))),
        ("Table 5: ranges of e, trained at 2 x; changes against the first", ["e", *HEAD[1:]], _table_5(document, extra)),
        ("Table 6: BABILong by length, clex, percent", ["length", *ANSWERS], _answers(spread, "factor", PAPER["6"])),
        ("Table 7: BABILong's first kind at 4 x by depth, percent", ["depth", *ANSWERS], _answers(deep, "depth", PAPER["7"])),
        ("Table 9: trained at 1 x, equal compute", HEAD, cheaper(1, "sce", _clex(PAPER["9"]))),
        ("Table 10: trained at 2 x, equal compute", HEAD, cheaper(2, "sce", _by_adjustment(PAPER["10"]))),
        ("Table 11: each technique alone, trained at 2 x; changes against the first", HEAD, _table_11(document, extra)),
        (f"{kl} steps", HEAD, equal(1, "kl", lambda adjustment, alpha: {})),
        (f"{kl} compute", HEAD, cheaper(1, "kl", lambda adjustment, alpha: {})),
        ("Misalignment on novels held out, at the length trained at, nats", misaligned, _misaligned(extra["misalignment"])),
    ]
    parts += [part for title, head, lines in sections if lines for part in (f"## {title}", table(head, lines))]
    return "\n\n".join(parts) + "\n"


def _about(noted: Numbers) -> str:
    made, machine = noted["made"], ", ".join(f"{key} {value}" for key, value in noted["made_with"].items())
    tokens, steps = made["train_length"], made["steps"]
    lines = [
        f"{noted['name']} (weights {made['model']}), trained on {tokens:,} tokens; {machine}",
        f"trained on {', '.join(noted['books'])}, measured on {', '.join(noted['held_out'])}: {made['streams']} streams each "
        f"of {max(LENGTHS) * tokens:,} tokens, in float32",
        f"{steps} steps of {made['batch']} rows at 1 x and half as many at 2 x, each row read twice; {made['dtype']}, AdamW, "
        f"warm-up of {steps // 10} steps; {noted['seeds']} seeds",
        f"longqlora is interpolation, LoRA and shifted sparse attention, on unquantised weights; BABILong has "
        f"{made['samples']} questions a cell of {', '.join(made['kinds'])}, misalignment {made['pairs']} pairs of readings",
        f"command: `{noted['command']}`",
    ]
    return "\n".join(f"- {line}" for line in lines)


# The paper's perplexities of an adjustment and an alpha, by corpus, or nothing
Printed = Callable[[str, float], Mapping[str, Perplexities]]


def _clex(corpora: Mapping[str, Mapping[str, Perplexities]]) -> Printed:
    def printed(adjustment: str, alpha: float) -> dict[str, Perplexities]:
        return {name: own[f"{alpha:g}"] for name, own in corpora.items() if adjustment == "clex" and f"{alpha:g}" in own}

    return printed


def _by_adjustment(tables: Mapping[str, Mapping[str, Perplexities]]) -> Printed:
    def printed(adjustment: str, alpha: float) -> dict[str, Perplexities]:
        own = tables.get(adjustment, {})
        return {"": own[f"{alpha:g}"]} if f"{alpha:g}" in own else {}

    return printed


def _against_alpha_0(document: Numbers, equal_compute: bool) -> Callable[[int, str, Printed], list[Line]]:
    """Lines of the settings at one length and comparison, each alpha against alpha 0 at equal steps or at equal compute."""
    last = document["settings"]["made"]["steps"]
    marks = (last // 4, last // 2, last)

    def lines(factor: int, compare: str, printed: Printed) -> list[Line]:
        rows: list[Line] = []
        for setting in _settings(document):
            if (setting[1], setting[2], setting[3]) != (factor, SAMPLING, compare):
                continue
            for point in _own(document, setting, compare):
                alpha, paper = point["alpha"], printed(setting[0], point["alpha"])
                for row in point["measured"]:
                    cheaper = row["steps"] != row["against_steps"]
                    if cheaper != equal_compute or (equal_compute and not alpha):
                        continue
                    ratios = row["ratio_to_alpha_0"] if alpha else {}
                    beside = _paper(paper, printed(setting[0], 0.0), marks.index(row["against_steps"]))
                    rows.append(_line([setting[0], f"{alpha:g}"], row["steps"], row["perplexity"], ratios, beside))
        return rows

    return lines


def _settings(document: Numbers) -> list[tuple[str, int, str, str]]:
    keys = ("adjustment", "factor", "sampling", "compare")
    return list(dict.fromkeys(tuple(point[key] for key in keys) for point in document["points"]))  # type: ignore[arg-type]


def _own(document: Numbers, setting: tuple[str, int, str, str], compare: str) -> list[Numbers]:
    """The points of a setting by alpha; runs compared by KL share those without alpha, which compare nothing."""
    keys = ("adjustment", "factor", "sampling")
    same = [point for point in document["points"] if tuple(point[key] for key in keys) == setting[:3]]
    plain = [point for point in same if point["compare"] == "sce" and not point["alpha"]]
    return [*plain, *(point for point in same if point["compare"] == compare and point["alpha"])]


def _table_5(document: Numbers, extra: Numbers) -> list[Line]:
    """Each range of e against the first."""
    return _against_another(document, extra, "5", [(key, alpha, key[2], PAPER["5"][key[2]]) for key, alpha in _RANGES])


def _table_11(document: Numbers, extra: Numbers) -> list[Line]:
    """Each technique against plain fine-tuning."""
    wanted = [(key, alpha, key[0], PAPER["11"][key[0]][f"{alpha:g}"]) for key, alpha in _ALONE]
    return _against_another(document, extra, "11", wanted)


def _against_another(document: Numbers, extra: Numbers, name: str, wanted: Sequence[tuple[Any, float, str, Any]]) -> list[Line]:
    compared = {
        (tuple(entry["setting"]), entry["alpha"], entry["steps"]): entry["ratios"]
        for entry in extra["against"]
        if entry["table"] == name
    }
    rows = []
    for key, alpha, label, printed in wanted:
        points_of = [point for point in _own(document, key, key[3]) if point["alpha"] == alpha] if document["points"] else []
        measured = [row for point in points_of for row in point["measured"] if row["steps"] == row["against_steps"]]
        for at, row in enumerate(measured):
            ratios = compared.get((tuple(key), alpha, row["steps"]), {})
            beside = _paper({"": printed}, {"": wanted[0][3]}, at)
            rows.append(_line([label, f"{alpha:g}"], row["steps"], row["perplexity"], ratios, beside))
    return rows


def _line(label: Line, steps: int, perplexity: Numbers, ratios: Numbers, beside: str) -> Line:
    twice, long = ratios.get("2 x"), ratios.get("long")
    lower = "" if long is None else f"{100 * long['lower']:.0f} %"
    return [*label, steps, *(_number(perplexity[f"{n} x"]) for n in LENGTHS), _change(twice), _change(long), lower, beside]


def _paper(own: Mapping[str, Perplexities], base: Mapping[str, Perplexities], at: int) -> str:
    """The paper's perplexity, and how it differs from what it is compared with."""
    parts = []
    for corpus, printed in own.items():
        change = "" if printed == base[corpus] else f" ({100 * (printed[at] / base[corpus][at] - 1):+.1f} %)"
        parts.append(f"{corpus} {printed[at]:g}{change}".strip())
    return "; ".join(parts)


def _number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "not finite"
    return f"{value:.{digits}f}" if value < 1000 else f"{value:.3g}"


def _change(ratio: Numbers | None) -> str:
    """A ratio as a change in percent."""
    if ratio is None:
        return ""
    ends = "" if ratio["low"] is None else f" [{100 * (ratio['low'] - 1):+.1f}, {100 * (ratio['high'] - 1):+.1f}]"
    return f"{100 * (ratio['value'] - 1):+.1f} %{ends}"


def _signed(mean: Numbers | None, digits: int) -> str:
    if mean is None:
        return ""
    ends = "" if mean["low"] is None else f" [{mean['low']:+.{digits}f}, {mean['high']:+.{digits}f}]"
    return f"{mean['value']:+.{digits}f}{ends}"


def _rates(trials: Sequence[Numbers]) -> list[Line]:
    """Perplexities on text held back; the chosen one, the lowest, is bold."""
    lines: list[Line] = []
    for adjustment in dict.fromkeys(trial["adjustment"] for trial in trials):
        own = {trial["rate"]: trial["nll"] for trial in trials if trial["adjustment"] == adjustment}
        best = min((nll for nll in own.values() if nll is not None), default=None)
        texts = [(_number(None if nll is None else math.exp(nll)), nll == best) for _, nll in sorted(own.items())]
        lines.append([adjustment, *(f"**{text}**" if bold and best is not None else text for text, bold in texts)])
    return lines


def _answers(answers: Sequence[Numbers], by: str, printed: Mapping[str, Perplexities]) -> list[Line]:
    """Percent right without the loss and with it, and the difference over seeds; the questions are the same for all."""
    lines: list[Line] = []
    for place in sorted({cell[by] for cell in answers}):
        cells = [cell for cell in answers if cell[by] == place]
        line: Line = [f"{place} x" if by == "factor" else f"{100 * place:.0f} %"]
        for score in ("generated", "likeliest"):
            without, with_loss, more = share(cells, score)
            line += [f"{without:.1f}", f"{with_loss:.1f}", _signed(asdict(more), 1)]
        beside = "{:g} -> {:g} ({:+.1f})".format(*pair, pair[1] - pair[0]) if (pair := printed.get(str(place))) else ""
        lines.append([*line, f"{100 * fmean(cell['chance'] for cell in cells):.1f}", beside])
    return lines


def share(cells: Sequence[Numbers], score: str, alpha: float = 0.1) -> tuple[float, float, Mean]:
    """Percent right with alpha 0 and with `alpha`, and the difference, over the seeds that both have."""

    def percent(value: float, seed: int) -> float:
        return 100 * fmean(mark for cell in cells if (cell["alpha"], cell["seed"]) == (value, seed) for mark in cell[score])

    seeds = sorted(set.intersection(*({cell["seed"] for cell in cells if cell["alpha"] == value} for value in (0.0, alpha))))
    without, with_loss = ([percent(value, seed) for seed in seeds] for value in (0.0, alpha))
    return fmean(without), fmean(with_loss), Mean.of([b - a for a, b in zip(without, with_loss, strict=True)])


def _misaligned(rows: Sequence[Numbers]) -> list[Line]:
    return [
        [row["trained"], f"{row['alpha']:g}", _number(row["sce"], 3), _number(row["kl"], 3)]
        + [_signed(row[name], 3) for name in ("sce_less", "kl_less")]
        for row in rows
    ]


def chart(document: Numbers) -> Any:
    """Perplexity after the last step in that with alpha 0: a panel a setting, alphas from left to right, a colour a length."""
    last = document["settings"]["made"]["steps"]
    settings = sorted(
        (one for one in _settings(document) if one[2] == SAMPLING), key=lambda one: (one[3] == "kl", one[1], one[0])
    )
    titles = [f"{name} at {factor} x{', by KL' if compare == 'kl' else ''}" for name, factor, _, compare in settings]
    figure, panels = draw.panels(len(settings), columns=4, width=3.1, height=2.9, titles=titles, share_y=True)
    for axes, setting in zip(panels, settings, strict=True):
        axes.axhline(1, color=draw.GREY, linewidth=0.9)
        points_of = [point for point in _own(document, setting, setting[3]) if point["alpha"]]
        for at, factor in enumerate(LENGTHS):
            axes.plot([], [], "o", color=draw.colour(at), label=f"{factor} x the model's length")
            for place, point in enumerate(points_of):
                rows = {(row["steps"], row["against_steps"]): row["ratio_to_alpha_0"] for row in point["measured"]}
                ratio = rows.get((last, last), {}).get(f"{factor} x")
                if ratio is not None:
                    x = place + 0.13 * (at - 1.5)
                    axes.plot(x, ratio["value"], "o", markersize=4, color=draw.colour(at))
                    if ratio["low"] is not None:
                        axes.plot([x, x], [ratio["low"], ratio["high"]], color=draw.colour(at), linewidth=1.2)
        axes.set_xticks(range(len(points_of)), [f"{point['alpha']:g}" for point in points_of])
        axes.set(xlabel="alpha", xlim=(-0.5, len(points_of) - 0.5))
    panels[0].set_yscale("log")
    panels[0].set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    panels[0].set_yticks([], minor=True)
    draw.key(figure, panels[0], columns=len(LENGTHS))
    figure.suptitle(f"Perplexity after {last} steps, in that with alpha 0", fontsize=11)
    return figure
