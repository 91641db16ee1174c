"""Is what `recommend` says the best of what it could have said?

    python -m experiments.recommendation.run MODEL --length 16384 --minutes 5 --out runs/regret
    python -m experiments.recommendation.run MODEL --length 16384 --text FILE --other-text FILE --out runs/regret

After each recommendation all its candidates answer the same new questions (or tell the same places of another text), the
losers of the race too. OUT/MODEL-LENGTH.json holds what was said and every score; the page compares.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib.command import main, option
from experiments._lib.results import write
from experiments.recommendation.page import FORMAT, write_pages
from lengthwise.common.text import read_texts
from lengthwise.errors import require
from lengthwise.evaluation.recommendation.clock import Clock
from lengthwise.evaluation.recommendation.exam import CONFIRM, Exam, QuestionExam
from lengthwise.evaluation.recommendation.steps import Recommendation
from lengthwise.evaluation.recommendation.text import TextExam
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load

AGAIN = 1_000_003  # added to the seed: neither the race's questions nor those that confirmed


@dataclass(frozen=True)
class Options:
    """One model at some lengths."""

    model: str = option(help="directory, hub name, GGUF file or embedded", positional=True)
    lengths: tuple[int, ...] = option(help="tokens", flag="--length")
    out: Path = option(help="folder of the results")
    tasks: tuple[str, ...] = option((), "tasks; by default those that the model can do", flag="--task")
    text: Path | None = option(None, "instead of questions: a text to choose by")
    other_text: Path | None = option(None, "and one to compare by")
    minutes: float = option(10.0, "for each recommendation")
    samples: int = option(64, "new questions of each task, or places")
    train_length: int | None = option(None, "the model's own if not given")
    dtype: str = option("auto", "of the model")
    seed: int = option(0, "of the recommendation")
    command: str = ""

    def __post_init__(self) -> None:
        both = (self.text is None) == (self.other_text is None)
        require(both, "a text chooses and another one compares; give both --text and --other-text")


def run(options: Options) -> None:
    model, tokenizer = load(options.model, options.dtype)
    for length in options.lengths:
        name = f"{Path(options.model).stem}-{length}"
        if (file := options.out / f"{name}.json").exists():
            continue
        asked, again = _asked(options, model, tokenizer, length, options.out / name)
        trial = Recommendation(asked, Clock(60 * options.minutes))
        recipe = trial.run()
        methods: dict[str, Any] = {**trial.baselines, **{name: list(parts) for name, parts in trial.candidates.items()}}
        scores: dict[str, list[float]] = {}
        for answer in again.answers(CONFIRM, methods, [length], options.samples):
            scores.setdefault(answer.method, []).append(answer.score)
        content = {
            "model": {"name": Path(options.model).stem, "weights": recipe.provenance["model"]},
            "train_length": recipe.train_length,
            "length": length,
            "measure": asked.measure.name,
            "asked": asked.usable_tasks,
            "recommended": recipe.method,
            "says": recipe.says,
            "race": recipe.evidence["race"],
            "untried": recipe.evidence["untried"],
            "minutes": options.minutes,
            "seconds": recipe.provenance["seconds"],
            "means": {name: round(fmean(mine), 4) for name, mine in scores.items()},
            "scores": scores,
        }
        write(file, FORMAT, f"python -m experiments.recommendation.run {options.command}", content, str(model.device))
    write_pages(options.out, options.out)


def _asked(options: Options, model: Any, tokenizer: Any, length: int, folder: Path) -> tuple[Exam, Exam]:
    """What recommends, and what compares."""
    trial = (model, tokenizer, anatomy_of(model, options.train_length), length, options.seed, folder, True)
    if options.text is None or options.other_text is None:
        asked = QuestionExam(*trial, options.tasks, None, None, options.model)
        return asked, replace(asked, seed=options.seed + AGAIN, folder=folder / "again", given=tuple(asked.usable_tasks))
    text = TextExam(*trial, read_texts([options.text]))
    return text, replace(text, text=read_texts([options.other_text]), folder=folder / "again")


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))
