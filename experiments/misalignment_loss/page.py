"""Runs compared in pairs, and the page made of the results: every table with the paper's numbers beside ours.

    d_s = mean over streams and lengths of (nll - nll of the other), of seed s        ratio = exp(mean d_s)

Both runs of a seed have seen the same rows in the same order, so they are compared in pairs; the 95 % interval is Student's
over the seeds. It is wide for three of them, and speaks of these streams.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table, words_beside
from experiments._lib.results import read
from experiments._lib.student import Mean
from lengthwise.common.files import write_whole

RESULTS, PAGE, FIGURE = (f"misalignment_loss.{ending}" for ending in ("json", "md", "svg"))
TABLES = "tables.json"  # what the results leave out: before training, ranges of e, techniques alone, misalignment
LENGTHS = (1, 2, 4, 8)  # at which perplexity is measured, in the model's own training lengths
LONG = LENGTHS[1:]
SAMPLING = "1..L/2"

Perplexities = Sequence[float]  # after 50, 100 and 200 steps; the paper's by adjustment, corpus and alpha
PAPER = read(Path(__file__).with_name("paper.json"))
# Settings and alphas of Tables 5 and 11, each of which is compared with its first
ALONE = (("none", 0.0), ("longqlora", 0.0), ("eabf", 0.0), ("none", 0.1))
COMPARED = {
    "5": [(("longqlora", 2, sampling, "sce"), 0.1) for sampling in PAPER["5"]],
    "11": [((name, 2, SAMPLING, "sce"), alpha) for name, alpha in ALONE],
}
WORDS = words_beside(__file__)
CHANGES = ("change at 2 x", "change over 2 x to 8 x", "lower on", "paper")
HEAD = ("adjustment", "alpha", "steps", *(f"{factor} x" for factor in LENGTHS), *CHANGES)
# Tables of alphas against alpha 0: length trained at, what readings are compared by, whether steps cost the same in sum
AGAINST_ALPHA_0 = {"2 and 4": (1, "sce", False), "3": (2, "sce", False), "9": (1, "sce", True), "10": (2, "sce", True)}
AGAINST_ALPHA_0 |= {"kl steps": (1, "kl", False), "kl compute": (1, "kl", True)}
ANSWERS = ("written, alpha 0", "0.1", "more", "likeliest, alpha 0", "0.1", "more", "chance", "paper")

Numbers = Mapping[str, Any]
Line = list[object]


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


def marks(steps: int) -> tuple[int, int, int]:
    """What 50, 100 and 200 steps are of the paper's 200."""
    return steps // 4, steps // 2, steps


def cheaper(mark: int) -> int:
    """Steps with the misalignment loss for the cost of `mark` without: the paper's 47, 95 and 190."""
    return max(1, mark * 95 // 100)


def points(outcome: Outcome, last: int) -> list[dict[str, Any]]:
    """Every setting and alpha after all steps it was measured at, against alpha 0: what results keep."""
    entries = []
    for setting in outcome.settings:
        for alpha in setting.alphas:
            rows = []
            for mark in marks(last):
                for steps in dict.fromkeys((mark, cheaper(mark))):
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
    for name, (base, *wanted) in COMPARED.items():
        for key, alpha in wanted:
            for mark in marks(last):
                if {key, base[0]} <= set(settings):
                    one, other = Point(settings[key], alpha, mark), Point(settings[base[0]], base[1], mark)
                    about = {"setting": list(key), "alpha": alpha, "steps": mark, "table": name}
                    against.append({**about, "ratios": {k: outcome.ratios(one, other)[k] for k in ("2 x", "long")}})
    return {"before": before, "against": against, "misalignment": misaligned}


MADE_OF = {"misalignment_loss": ["tables"]}


def write_pages(results: Path, out: Path) -> None:
    """The page and its chart, from RESULTS/misalignment_loss.json and tables.json."""
    document = read(results / RESULTS)
    draw.save(chart(document), out / FIGURE)
    write_whole(out / PAGE, page(document, read(results / TABLES)))


def page(document: Numbers, extra: Numbers) -> str:
    parts = ["# Does the misalignment loss help in fine-tuning? (Output Alignment, Tables 2 to 7 and 9 to 11, in small)"]
    parts += [_about(document["settings"]), WORDS["about"]]
    if document["cost"]:
        parts.append(WORDS["cost"].format(**document["cost"]))
    parts += [_by_chance(document), f"![Perplexity by alpha]({FIGURE})"]
    spread = [cell for cell in document["answers"] if cell["depth"] is None]
    deep = [cell for cell in document["answers"] if cell["depth"] is not None]
    bodies: dict[str, list[Line]] = {
        "before": [[label, *map(_number, row.values())] for label, row in extra["before"].items()],
        "rates": _rates(document["trials"]),
        "5": _against_first(document, extra, "5"),
        "6": _answers(spread, "factor", PAPER["6"]),
        "7": _answers(deep, "depth", PAPER["7"]),
        "11": _against_first(document, extra, "11"),
        "misalignment": list(map(_misaligned, extra["misalignment"])),
        **{name: _against_alpha_0(document, name, *how) for name, how in AGAINST_ALPHA_0.items()},
    }
    heads: dict[str, Sequence[object]] = {
        "before": ["method", *(f"{factor} x" for factor in LENGTHS)],
        "rates": ["adjustment", *sorted({trial["rate"] for trial in document["trials"]})],
        "5": ["e", *HEAD[1:]],
        "6": ["length", *ANSWERS],
        "7": ["depth", *ANSWERS],
        "misalignment": ["trained", "alpha", "L_misalign", "KL", "L_misalign less alpha 0's", "KL less alpha 0's"],
    }
    for name, title in WORDS["titles"].items():
        parts += [f"## {title}", table(heads.get(name, HEAD), bodies[name])] if bodies[name] else []
    return "\n\n".join(parts) + "\n"


def _by_chance(document: Numbers) -> str:
    measured = [row["ratio_to_alpha_0"] for point in document["points"] if point["alpha"] for row in point["measured"]]
    ratios = [ratio for by_length in measured for length, ratio in by_length.items() if ratio and length != "long"]
    ratios = [ratio for ratio in ratios if "verdict" in ratio]  # of one seed there is none
    found = Counter(ratio["verdict"] for ratio in ratios)
    counts = {word: found[word] for word in ("harms", "helps", "undecided")}
    return str(WORDS["chance"].format(n=len(ratios), chance=round(len(ratios) / 40), **counts)) if ratios else ""


def _about(noted: Numbers) -> str:
    made, machine = noted["made"], ", ".join(f"{key} {value}" for key, value in noted["made_with"].items())
    named = {"books": ", ".join(noted["books"]), "held_out": ", ".join(noted["held_out"]), "kinds": ", ".join(made["kinds"])}
    numbers = {"longest": max(LENGTHS) * made["train_length"], "warm_up": made["steps"] // 10}
    return str(WORDS["made"].format(**{**noted, **named, **numbers, "machine": machine}))


def _against_alpha_0(document: Numbers, name: str, factor: int, compare: str, equal_compute: bool) -> list[Line]:
    """Lines of the settings at one length and comparison, each alpha against alpha 0 at equal steps or at equal compute."""
    last, rows = document["settings"]["made"]["steps"], list[Line]()
    for setting in _settings(document):
        if setting[1:] != (factor, SAMPLING, compare):
            continue
        tables = PAPER.get(name, {}).get(setting[0], {})
        base = {corpus: own["0"] for corpus, own in tables.items()}
        for point in _own(document, setting, compare):
            alpha = f"{point['alpha']:g}"
            printed = {corpus: own[alpha] for corpus, own in tables.items() if alpha in own}
            for row in point["measured"]:
                cheaper = row["steps"] != row["against_steps"]
                if cheaper == equal_compute and (point["alpha"] or not equal_compute):
                    ratios = row["ratio_to_alpha_0"] if point["alpha"] else {}
                    beside = _paper(printed, base, marks(last).index(row["against_steps"]))
                    rows.append(_line([setting[0], alpha], row["steps"], row["perplexity"], ratios, beside))
    return rows


def _settings(document: Numbers) -> list[tuple[str, int, str, str]]:
    keys = ("adjustment", "factor", "sampling", "compare")
    return list(dict.fromkeys(tuple(point[key] for key in keys) for point in document["points"]))  # type: ignore[arg-type]


def _own(document: Numbers, setting: tuple[str, int, str, str], compare: str) -> list[Numbers]:
    """The points of a setting by alpha; runs compared by KL share those without alpha, which compare nothing."""
    keys = ("adjustment", "factor", "sampling")
    same = [point for point in document["points"] if tuple(point[key] for key in keys) == setting[:3]]
    plain = [point for point in same if point["compare"] == "sce" and not point["alpha"]]
    return [*plain, *(point for point in same if point["compare"] == compare and point["alpha"])]


def _against_first(document: Numbers, extra: Numbers, name: str) -> list[Line]:
    """Table 5, each range of e against the first, or Table 11, each technique against plain fine-tuning."""
    keys = ("setting", "alpha", "steps")
    compared = {
        json.dumps([entry[key] for key in keys]): entry["ratios"] for entry in extra["against"] if entry["table"] == name
    }
    rows, first = list[Line](), None
    for key, alpha in COMPARED[name]:
        printed = PAPER["5"][key[2]] if name == "5" else PAPER["11"][key[0]][f"{alpha:g}"]
        first = first or printed
        points_of = [point for point in _own(document, key, key[3]) if point["alpha"] == alpha] if document["points"] else []
        measured = [row for point in points_of for row in point["measured"] if row["steps"] == row["against_steps"]]
        for at, row in enumerate(measured):
            ratios, label = compared.get(json.dumps([key, alpha, row["steps"]]), {}), key[2] if name == "5" else key[0]
            beside = _paper({"": printed}, {"": first}, at)
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
    ends = {key: ratio[key] for key in ("value", "low", "high")} if ratio else {}
    percent = {key: None if end is None else 100 * (end - 1) for key, end in ends.items()}
    return _signed(percent or None, 1, " %")


def _signed(mean: Numbers | None, digits: int, unit: str = "") -> str:
    if mean is None:
        return ""
    ends = "" if mean["low"] is None else f" [{mean['low']:+.{digits}f}, {mean['high']:+.{digits}f}]"
    return f"{mean['value']:+.{digits}f}{unit}{ends}"


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


def _misaligned(row: Numbers) -> Line:
    less = [_signed(row[name], 3) for name in ("sce_less", "kl_less")]
    return [row["trained"], f"{row['alpha']:g}", _number(row["sce"], 3), _number(row["kl"], 3), *less]


def chart(document: Numbers) -> Any:
    """Perplexity after the last step in that with alpha 0: a panel a setting, alphas from left to right, a colour a length."""
    last = document["settings"]["made"]["steps"]
    usual = [setting for setting in _settings(document) if setting[2] == SAMPLING]
    settings = sorted(usual, key=lambda setting: (setting[3] == "kl", setting[1], setting[0]))
    titles = [f"{name} at {factor} x{', by KL' if compare == 'kl' else ''}" for name, factor, _, compare in settings]
    figure, panels = draw.panels(len(settings), columns=4, width=3.1, height=2.9, titles=titles, share_y=True)
    panels[0].set_ylabel(f"perplexity after {last} steps,\nover that with alpha 0")
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
    return figure
