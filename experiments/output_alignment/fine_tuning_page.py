"""Writes the page of Tables 2 to 7 and 9 to 11: what came out, every table with the paper's numbers beside ours, the chart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments._lib.draw import save
from experiments._lib.markdown import table
from experiments.output_alignment import fine_tuning_cost as costs
from experiments.output_alignment import fine_tuning_tables as tables
from experiments.output_alignment.fine_tuning_chart import chart
from experiments.output_alignment.fine_tuning_compared import LONG, Outcome, Point
from experiments.output_alignment.fine_tuning_findings import Findings
from experiments.output_alignment.fine_tuning_grid import LENGTHS, MODERATE, STAGES, Setting, cheaper, marks, stages
from experiments.output_alignment.fine_tuning_records import Found
from experiments.output_alignment.fine_tuning_subject import FORMAT, Noted, read_noted
from experiments.output_alignment.fine_tuning_training import warmup
from experiments.output_alignment.fine_tuning_work import chosen
from lengthwise.common.files import write_whole
from lengthwise.errors import require

NAME = "fine_tuning"

ABOUT = """A run is the model fine-tuned on novels through `lengthwise.train`, and measured on novels it has not seen. Lengths
are in the model's own training lengths: `at 2 x` is trained there, a column `2 x` is perplexity there, of readings of that
many tokens one after the other through the same text. The paper trains Llama2-7B at 1 x (Tables 2, 4, 9) and at 2 x (3, 5,
10, 11) and measures at 2 x. A change is that of perplexity against alpha 0 of the same seed, which saw the same rows in the
same order and the same e; in brackets its 95 % interval, Student's over seeds. `lower on` counts seeds and streams of which
perplexity over 2 x to 8 x is the lower one, and the verdict is of that perplexity: `helps` or `harms` where the whole
interval says so. With alpha 0 a step reads the same two readings of every row, so that equal steps are equal tokens; equal
compute gives alpha above 0 the paper's 5 % fewer steps. The learning rate is constant after a warm-up: a shorter run is the
beginning of a longer one. Each adjustment has the learning rate that is best for alpha 0. LongBench-E, the paper's other
measure, is beyond such a model: BABILong stands in for it. Runs `by KL` are not the paper's: in their loss the symmetric KL
of the two readings, which is L_misalign less both entropies, takes its place."""

ANSWERS_HEAD = ["written, alpha 0", "0.1", "more", "likeliest, alpha 0", "0.1", "more", "chance", "paper"]


def write(out: Path) -> str:
    """fine_tuning.md, .json and .svg; returns the page."""
    noted, found = read_noted(out), Found.in_(out)
    require(bool(found.results), f"no run in {out} is finished yet; run the same command without --page first")
    outcome = Outcome(found.results)
    said = Findings(found, outcome, noted.steps, costs.kept(out)).said()
    text = _text(noted, found, outcome, said)
    save(chart(outcome, noted.steps), out / f"{NAME}.svg")
    write_whole(out / f"{NAME}.json", json.dumps(_document(noted, found, outcome, said, costs.kept(out)), indent=1) + "\n")
    write_whole(out / f"{NAME}.md", text)
    return text


def _text(noted: Noted, found: Found, outcome: Outcome, said: Sequence[str]) -> str:
    made = tables.Tables(outcome, noted.steps)
    parts = ["# Does the misalignment loss help in fine-tuning? (Output Alignment, Tables 2 to 7 and 9 to 11, in small)"]
    parts.append("\n".join(f"- {words}" for words in said))
    parts += [_unfinished(noted, found), _head(noted, found), ABOUT, f"![Perplexity by alpha]({NAME}.svg)"]
    sections: list[tuple[str, Sequence[object], list[list[object]]]] = [
        ("Before training", ["method", *(f"{factor} x" for factor in LENGTHS)], made.before()),
        ("Learning rates: perplexity at 2 x on text held back, alpha 0", _rates_head(found), _rates(found)),
        ("Tables 2 and 4: trained at 1 x, equal steps", tables.HEAD, made.by_alpha(1, False)),
        ("Table 3: trained at 2 x, equal steps", tables.HEAD, made.by_alpha(2, False)),
        ("Table 5: ranges of e, trained at 2 x; changes against the first", ["e", *tables.HEAD[1:]], made.ranges()),
        ("Table 6: BABILong by length, clex, percent", ["length", *ANSWERS_HEAD], tables.by_length(found.answers)),
        ("Table 7: BABILong's first kind at 4 x by depth, percent", ["depth", *ANSWERS_HEAD], tables.by_depth(found.answers)),
        ("Table 9: trained at 1 x, equal compute", tables.HEAD, made.by_alpha(1, True)),
        ("Table 10: trained at 2 x, equal compute", tables.HEAD, made.by_alpha(2, True)),
        ("Table 11: each technique alone, trained at 2 x; changes against the first", tables.HEAD, made.alone()),
        ("Not in the paper: compared by the symmetric KL, trained at 1 x, equal steps", tables.HEAD, made.by_kl(False)),
        ("Not in the paper: compared by the symmetric KL, trained at 1 x, equal compute", tables.HEAD, made.by_kl(True)),
        ("Misalignment on novels held out, at the length trained at, nats", _MISALIGNED, made.misaligned()),
    ]
    for title, head, lines in sections:
        if lines:
            parts += [f"## {title}", table(head, lines)]
    return "\n\n".join(part for part in parts if part) + "\n"


_MISALIGNED = ["trained", "alpha", "L_misalign", "KL", "L_misalign less alpha 0's", "KL less alpha 0's"]


def _unfinished(noted: Noted, found: Found) -> str:
    """By stage, as far as the stages that were asked for."""
    done = {one.run.name for one in found.results if one.steps == noted.steps}
    parts = []
    for words, stage in zip(STAGES[: noted.stages], stages(noted.seeds), strict=False):
        if missing := sum(run.name not in done for run in stage):
            parts.append(f"{missing} of {len(stage)} runs of {words}")
    return f"**Unfinished**: {'; '.join(parts)}. The same command goes on." if parts else ""


def _head(noted: Noted, found: Found) -> str:
    made = noted.made
    machine = ", ".join(f"{key} {value}" for key, value in noted.made_with.items())
    last = [one.seconds for one in found.results if one.steps == noted.steps]
    lines = [
        f"{noted.name} (weights {made['model']}), trained on {noted.train_length:,} tokens; {machine}",
        f"trained on {', '.join(noted.books)}, measured on {', '.join(noted.held_out)}: {made['streams']} streams each of "
        f"{max(LENGTHS) * noted.train_length:,} tokens, in float32",
        f"{noted.steps} steps of {made['batch']} rows at 1 x and half as many at 2 x, each row read twice; {made['dtype']}, "
        f"AdamW, warm-up of {warmup(noted.steps)} steps; {noted.seeds} seeds, {len(last)} runs of {sum(last) / len(last):.0f} "
        "seconds each in the mean, several at once",
        f"longqlora is interpolation, LoRA and shifted sparse attention, on unquantised weights; BABILong has "
        f"{made['samples']} questions a cell of {', '.join(made['kinds'])}, misalignment {made['pairs']} pairs of readings",
        f"command: `{noted.command}`",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _rates_head(found: Found) -> list[object]:
    return ["adjustment", *(f"{rate:g}" for rate in sorted({trial.rate for trial in found.trials}))]


def _rates(found: Found) -> list[list[object]]:
    used = {trial.adjustment: chosen(trial.adjustment, found.trials) for trial in found.trials if trial.nll is not None}
    return tables.rates(found.trials, used)


def _document(noted: Noted, found: Found, outcome: Outcome, said: Sequence[str], cost: costs.Cost | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "settings": {key: value for key, value in asdict(noted).items() if key != "format"},
        "findings": list(said),
        "cost": None if cost is None else asdict(cost),
        "trials": [asdict(trial) for trial in found.trials],
        "points": [_point(outcome, setting, alpha, noted.steps) for setting in outcome.settings for alpha in setting.alphas],
        "answers": [asdict(one) for one in found.answers],
    }


def _point(outcome: Outcome, setting: Setting, alpha: float, last: int) -> dict[str, Any]:
    """One setting with one alpha after all steps it was measured at."""
    rows = []
    for mark in marks(last):
        for steps in dict.fromkeys((mark, cheaper(mark))):
            point = Point(setting, alpha, steps)
            if not outcome.results(point):
                continue
            ratios = {
                name: ratio and {**asdict(ratio), "verdict": ratio.verdict}
                for name, factors in (*((f"{factor} x", (factor,)) for factor in LENGTHS), ("long", LONG))
                for ratio in [outcome.ratio(point, Point(setting, alpha, mark).without, factors)]
            }
            perplexity = {f"{factor} x": outcome.perplexity(point, factor) for factor in LENGTHS}
            rows.append({"steps": steps, "against_steps": mark, "perplexity": perplexity, "ratio_to_alpha_0": ratios})
    return {**asdict(setting), "alpha": alpha, "moderate": alpha in MODERATE, "measured": rows}
