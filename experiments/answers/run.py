"""What do temperatures gain that are fitted to made-up answers, against those that keep P_max, and what do others pay for it?

    python -m experiments.answers.run MODEL --length 2048 4096 --out OUT
    python -m experiments.answers.run MODEL --length 2048 --questions nq.jsonl.gz --novel NOVEL.txt --out OUT
    python -m experiments.answers.run DECODER --length 1024 --on yarn:factor=4 --fit-text A.txt --novel B.txt --out OUT
    python -m experiments.answers.run MODEL --length 2048 --ask-length 2048 4096 --fit answers-head:steps=5 --out OUT

Fits on the package's material, or on far words of --fit-text; asks other prompts, questions of a file, and places of a novel.
A fit may have settings other than the package's own: steps, regulariser, guard, sequences and task (several joined by +).
OUT/MODEL.json holds the temperatures, what they cost in forwards of the long input, and every score; the page compares.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lengthwise as lw
from experiments._lib import results
from experiments._lib.command import main, option
from experiments.answers.page import FORMAT, write_pages
from lengthwise.calibration import answer_cases, answers
from lengthwise.common.text import read_texts
from lengthwise.errors import require
from lengthwise.evaluation.recommendation.exam import CONFIRM
from lengthwise.evaluation.recommendation.text import TextExam
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.load import load

# Settings of a fit that are constants of the package
CONSTANTS = {
    "steps": (answers, "STEPS", int),
    "regulariser": (answers, "REGULARISER", float),
    "guard": (answer_cases, "GUARD", float),
}
FITS = ("pmax-model", "pmax-layer", "pmax-head", "entropy-model", "answers-model", "answers-layer", "answers-head")
ASKED = ("passkey", "line", "multi_document_qa")
Scores = dict[str, dict[str, dict[str, list[float]]]]  # by what was asked, length and method


@dataclass(frozen=True)
class Options:
    """One model at some lengths."""

    model: str = option(help="directory, hub name, GGUF file or embedded", positional=True)
    lengths: tuple[int, ...] = option(help="tokens", flag="--length")
    out: Path = option(help="folder of the results")
    fits: tuple[str, ...] = option(("pmax-model", "answers-model", "answers-head"), f"of {', '.join(FITS)}", "--fit")
    fit_tasks: tuple[str, ...] = option((), "tasks that are fitted; four by default")
    fit_text: Path | None = option(None, "fit words that stand far back in this text, instead of tasks")
    sequences: int | None = option(None, "prompts of a task that are fitted or held out, by default what suits the scope")
    on: str = option("none", "methods under the temperatures")
    tasks: tuple[str, ...] = option((), "that are asked; three by default, none with --fit-text", "--task")
    questions: Path | None = option(None, "a file of questions to ask as well, among documents of its own")
    novel: Path | None = option(None, "a text to tell as well")
    ask_lengths: tuple[int, ...] = option((), "tokens of what is asked; those of the fits by default", flag="--ask-length")
    samples: int = option(100, "of each task and length, and places of the novel")
    question_samples: int = option(200, "of the file of questions")
    seed: int = option(0, "of the fits; what is asked has the next one")
    train_length: int | None = option(None, "the model's own if not given")
    dtype: str = option("auto", "of the model")
    name: str | None = option(None, "of the result file, by default the model's")
    command: str = ""

    @property
    def asked_lengths(self) -> tuple[int, ...]:
        return self.ask_lengths or self.lengths


def run(options: Options) -> None:
    novel = None if options.novel is None else read_texts([options.novel])
    model, tokenizer = load(options.model, options.dtype)
    anatomy = anatomy_of(model, options.train_length)
    name = options.name or Path(options.model).stem
    fitted = {fit: _fit(options, model, tokenizer, fit) for fit in options.fits}
    base = [] if options.on == "none" else [options.on]
    methods: dict[str, Any] = {"none": "none", "truncate": "truncate", **{spec: spec for spec in base}}
    methods |= {fit: [*base, alignment] for fit, (alignment, _) in fitted.items()}
    content = {
        "model": {"name": name, "weights": model_fingerprint(anatomy)["weights"]},
        "train_length": anatomy.train_length,
        "on": options.on,
        "fits": {fit: told for fit, (_, told) in fitted.items()},
        "scores": {**_asked(options, model, tokenizer, methods), **_told(options, model, tokenizer, methods, novel)},
    }
    command = f"python -m experiments.answers.run {options.command}"
    results.write(options.out / f"{name}.json", FORMAT, command, content, str(model.device))
    write_pages(options.out, options.out)


def _fit(options: Options, model: Any, tokenizer: Any, fit: str) -> tuple[lw.Alignment, dict[str, Any]]:
    """An alignment, and what it cost."""
    named, settings = settings_of(fit)
    statistic, _, scope = named.partition("-")
    asked: dict[str, Any] = {}
    if statistic == "answers":
        text = None if options.fit_text is None else read_texts([options.fit_text])
        tasks = tuple(settings["task"].split("+")) if "task" in settings else options.fit_tasks
        asked = {
            "text": text,
            "task": tasks or None,
            "sequences": int(settings.get("sequences", options.sequences or 0)) or None,
        }
    start = time.perf_counter()
    with other_constants(settings):
        alignment = lw.calibrate(
            model,
            tokenizer,
            options.lengths,
            statistic=statistic,
            scope=scope,
            train_length=options.train_length,
            seed=options.seed,
            method=options.on,
            **asked,
        )
    return alignment, {
        "seconds": round(time.perf_counter() - start, 1),
        "forwards": {str(entry.length): entry.forwards for entry in alignment.temperatures},
        "tau": {str(entry.length): entry.tau for entry in alignment.temperatures},
        "expects": {str(found["length"]): found.get("expects") for found in alignment.provenance["searched"]},
        "path": {str(found["length"]): found["path"] for found in alignment.provenance["searched"]},
    }


def settings_of(fit: str) -> tuple[str, dict[str, str]]:
    """The fit's name and its settings."""
    name, _, rest = fit.partition(":")
    settings = dict(pair.partition("=")[::2] for pair in rest.split(",") if pair)
    known = {*CONSTANTS, "sequences", "task"}
    require(name in FITS, f"no fit {name!r}; choose of {', '.join(FITS)}")
    require(settings.keys() <= known, f"{fit!r} has a setting that is none of {', '.join(sorted(known))}")
    return name, settings


def other_constants(settings: dict[str, str]) -> AbstractContextManager[Any]:
    """The package's constants changed to what the settings say."""
    changed = ExitStack()
    for key, (module, constant, kind) in CONSTANTS.items():
        if key in settings:
            changed.enter_context(patch.object(module, constant, kind(settings[key])))
    return changed


def _asked(options: Options, model: Any, tokenizer: Any, methods: dict[str, Any]) -> Scores:
    """Right or wrong on fresh samples of the tasks, and on the questions of a file."""
    tasks = options.tasks or (ASKED if options.fit_text is None else ())
    asked: list[tuple[str, str, Path | None, int]] = [(task, task, None, options.samples) for task in tasks]
    if options.questions is not None:
        asked += [("questions of a file", "multi_document_qa", options.questions, options.question_samples)]
    scores: Scores = {}
    for name, task, data, samples in asked:
        records = lw.evaluate(
            model,
            tokenizer,
            methods,
            task,
            options.asked_lengths,
            samples,
            options.seed + 1,
            data=data,
            train_length=options.train_length,
            sharpness=False,
        )
        for record in records:
            scores.setdefault(name, {}).setdefault(str(record.length), {}).setdefault(record.method, []).append(record.score)
    return scores


def _told(options: Options, model: Any, tokenizer: Any, methods: dict[str, Any], novel: str | None) -> Scores:
    """Minus the nats a token of what follows in a novel."""
    if novel is None:
        return {}
    scores: dict[str, dict[str, list[float]]] = {}
    for length in options.asked_lengths:
        folder = options.out / "novel"
        trial = (model, tokenizer, anatomy_of(model, options.train_length), length, options.seed, folder, True)
        for reading in TextExam(*trial, novel).answers(CONFIRM, methods, [length], options.samples):
            scores.setdefault(str(length), {}).setdefault(reading.method, []).append(round(reading.score, 4))
    return {"novel": scores}


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))
