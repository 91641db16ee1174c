"""See why a model fails at length, and what a temperature will do, in a few forwards a length; no labels are needed.

    analysis = lengthwise.analyse(model, tokenizer, [512, 1024, 2048, 4096], out="runs/analysis")
    analysis.temperatures[-1].pmax                                  # Algorithm 1's tau at the longest
    analysis.heads[0]                                               # the head that disperses most

One forward a length measures P_max, entropy and largest logit of every layer and head, and the sorted, averaged logits of the
first layer; `calibrate` solves for the temperature at each. With tasks, a few questions at every length tell whether their
answers want attention sharper or flatter, which none of these statistics can. Finished lengths are kept: the same call goes on
where it was stopped, and a call with more lengths or tasks adds to what is there.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lengthwise.analysis.answer_slopes import CASES, answer_slopes
from lengthwise.analysis.figures import figures
from lengthwise.analysis.measurements import at_length, dispersal, sights
from lengthwise.analysis.records import (
    ALIGNED,
    ANALYSIS,
    ANSWERS,
    LENGTHS,
    Aligned,
    Analysis,
    AnswerSlopes,
    AtLength,
    read_document,
)
from lengthwise.analysis.section import analysis_article
from lengthwise.analysis.tables import csv_tables
from lengthwise.analysis.temperatures import temperatures
from lengthwise.calibration.calibrate import calibrate
from lengthwise.common.arguments import require_tokenizer, typed
from lengthwise.common.files import write_whole
from lengthwise.common.progress import ProgressCallback, progress
from lengthwise.common.sequences import long_sequences
from lengthwise.common.text import parse_lengths, text_or_prose
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.sweep.run_config import dtype_of, made_with, parameters_digest, tokenizer_digest
from lengthwise.methods.temperature.aligned import MEASURED
from lengthwise.models.anatomy import Anatomy, anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.patches import refuse_extended
from lengthwise.models.suitability import check_can_answer, refuse_past_the_table
from lengthwise.records.append_only import AppendOnly
from lengthwise.records.config import ANOTHER, check_same
from lengthwise.records.directory import make_or_enter
from lengthwise.report import png
from lengthwise.report.charts import svg
from lengthwise.tasks import find_task, without_groups
from lengthwise.tasks.making import make_samples

FORWARDS = 4  # of one calibration, about
# Short lengths are read in several sequences, until so many tokens have been read
TOKENS, MOST_SEQUENCES = 4096, 16
FEW = 16  # tokens that tell whether attention can be read at all


@typed
def analyse(
    model: nn.Module,
    tokenizer: Any,
    lengths: int | Sequence[int],
    out: str | Path,
    *,
    text: str | None = None,
    files: Sequence[str | Path] = (),
    tasks: str | Sequence[str] = (),
    train_length: int | None = None,
    sequences: int = 1,
    seed: int = 0,
    name: str = "",
    show_progress: bool = True,
) -> Analysis:
    """Analyse `model` at `lengths` and at its training length; `out` receives tables, figures and analysis.json.

    Sequences are cut from `text`, from `files`, or from prose that ships with lengthwise, `sequences` of them at long lengths.
    Of every task in `tasks`, eight times as many questions are asked at every length.
    """
    refuse_extended(model, "analyse")
    require_tokenizer(tokenizer)
    anatomy = anatomy_of(model, train_length)
    source, text = text_or_prose(text, files)
    lengths = _checked(parse_lengths(lengths), anatomy.train_length, sequences)
    refuse_past_the_table(anatomy, lengths[-1])
    asked = without_groups(tasks)
    job = _Job(model, anatomy, tokenizer, text, sequences, seed, tuple(asked))
    # Refused now, and before anything is written: a text too short, a model whose attention cannot be read
    read = {length: job.sequences_of(length) for length in lengths}
    at_length(model, anatomy, read[lengths[0]][:1, :FEW])
    job.check_tasks(lengths[-1])
    begun = _empty_analysis(job, source, [str(path) for path in files], name)
    folder = _AnalysisFolder(Path(out), begun, job.tasks)
    with progress("analysing", folder.remaining_cost(lengths, job), show_progress) as tick:
        for length in lengths:
            job.finish_length(read[length], folder, tick)
    return folder.finish(anatomy)


@dataclass(frozen=True)
class _Job:
    """One model, the text it reads and the tasks it is asked."""

    model: nn.Module
    anatomy: Anatomy
    tokenizer: Any
    text: str
    sequences: int
    seed: int
    tasks: tuple[str, ...]

    def check_tasks(self, longest: int) -> None:
        """Refuse a model that writes nothing, and tasks that do not exist or have no room at any length."""
        if self.tasks:
            check_can_answer(self.model)
        for name in self.tasks:
            make_samples(name, find_task(name), self.tokenizer, longest, 1, self.seed)

    def sequences_of(self, length: int) -> Tensor:  # [sequences, length]
        """Token ids to read at a length: many sequences where it is short; a single one is what `calibrate` reads."""
        count = self.sequences * max(1, min(TOKENS // length, MOST_SEQUENCES))
        return long_sequences(self.tokenizer, self.text, length, count, self.seed)

    def finish_length(self, ids: Tensor, folder: _AnalysisFolder, tick: ProgressCallback) -> None:
        """Measure and align what is not yet in the folder at the length of `ids`."""
        length = ids.shape[1]
        if length not in folder.lengths.lines:
            tick(0, f"length {length:,}: measuring")
            folder.lengths.append([at_length(self.model, self.anatomy, ids)])
            tick(_cost(length))
        for statistic in MEASURED if length > self.anatomy.train_length else ():
            if (length, statistic) not in folder.aligned.lines:
                tick(0, f"length {length:,}: Algorithm 1, {statistic}")
                folder.aligned.append([self.aligned(length, statistic)])
                tick(FORWARDS * _cost(length))
        for task in self.tasks:
            if (length, task) not in folder.answers.lines:
                tick(0, f"length {length:,}: {task}")
                slopes = answer_slopes(
                    self.model, self.tokenizer, self.anatomy, task, length, CASES * self.sequences, self.seed
                )
                folder.answers.append([] if slopes is None else [replace(slopes, code=find_task(task).code)])
                tick(self.cost_of_answers(length))
        folder.write(self.anatomy)

    def cost_of_answers(self, length: int) -> float:
        """The cost of one task's slopes: a backward takes as long as two forwards."""
        return 3 * CASES * self.sequences * _cost(length)

    def aligned(self, length: int, statistic: str) -> Aligned:
        """Solve Algorithm 1 at one length, so that it does not depend on which others are asked for."""
        how: dict[str, Any] = {"train_length": self.anatomy.train_length, "text": self.text, "show_progress": False}
        try:
            alignment = calibrate(
                self.model, self.tokenizer, length, statistic=statistic, sequences=self.sequences, seed=self.seed, **how
            )
        except BadInput as error:
            # Text and model have been read before: what is left is that no temperature serves
            return Aligned(length, statistic, None, str(error))
        return Aligned(length, statistic, float(alignment.tau(length)))


class _AnalysisFolder:
    """The folder that `analyse` writes, with the lengths that are finished already."""

    def __init__(self, path: Path, begun: Analysis, tasks: Sequence[str]) -> None:
        """Begin a new or empty directory, or go on with one that was begun with the same model and settings."""
        self.path, self.begun = path, begun
        if make_or_enter(path, "an analysis", ANALYSIS):
            check_same(read_document(path), begun.to_json(), path)
        else:
            write_whole(path / ANALYSIS, json.dumps(begun.to_json(), indent=1) + "\n")
        self.lengths = AppendOnly(path / LENGTHS, AtLength)
        self.aligned = AppendOnly(path / ALIGNED, Aligned)
        self.answers = AppendOnly(path / ANSWERS, AnswerSlopes)
        for slopes in self.answers.lines.values():
            same = slopes.task not in tasks or slopes.code == find_task(slopes.task).code
            require(same, f"the task {slopes.task!r} has changed since {path} was begun; {ANOTHER}")

    def remaining_cost(self, lengths: Sequence[int], job: _Job) -> float:
        """Work that is not done yet, in the units of `_cost`."""
        measuring = sum(_cost(n) for n in lengths if n not in self.lengths.lines)
        asked = [(n, task) for n in lengths for task in job.tasks]
        measuring += sum(job.cost_of_answers(n) for n, task in asked if (n, task) not in self.answers.lines)
        pairs = [(n, statistic) for n in lengths if n > job.anatomy.train_length for statistic in MEASURED]
        return measuring + sum(FORWARDS * _cost(n) for n, statistic in pairs if (n, statistic) not in self.aligned.lines)

    def write(self, anatomy: Anatomy) -> Analysis:
        """Write analysis.json as far as it goes."""
        trained = anatomy.train_length
        lengths = tuple(sorted(self.lengths.lines.values(), key=lambda measured: measured.length))
        by_length = {measured.length: measured for measured in lengths}
        aligned = {entry.key: entry for entry in self.aligned.lines.values()}
        longest = max([*by_length, trained])
        known = trained in by_length and longest > trained
        analysis = replace(
            self.begun,
            lengths=lengths,
            temperatures=tuple(temperatures(trained, lengths, aligned)),
            heads=tuple(dispersal(by_length[trained], by_length[longest])) if known else (),
            sights=tuple(sights(anatomy, longest)),
            answers=tuple(sorted(self.answers.lines.values(), key=lambda answers: answers.key)),
        )
        write_whole(self.path / ANALYSIS, json.dumps(analysis.to_json(), indent=1) + "\n")
        return analysis

    def finish(self, anatomy: Anatomy) -> Analysis:
        """Write analysis.json, tables, figures and analysis.md."""
        analysis = self.write(anatomy)
        for file, table in csv_tables(analysis).items():
            write_whole(self.path / "tables" / file, table)
        for figure in figures(analysis):
            write_whole(self.path / "figures" / f"{figure.name}.svg", svg(figure))
            if png.available():
                write_whole(self.path / "figures" / f"{figure.name}.png", png.png(figure))
        if not png.available():
            warnings.warn(png.INSTALL, stacklevel=4)
        write_whole(self.path / "analysis.md", analysis_article(analysis).markdown("figures"))
        return analysis


def _empty_analysis(job: _Job, source: str, files: list[str], name: str) -> Analysis:
    fingerprint = model_fingerprint(job.anatomy)
    settings = {
        "train_length": job.anatomy.train_length,
        "text": source,
        "text_digest": hashlib.sha256(job.text.encode()).hexdigest()[:16],
        "sequences": job.sequences,
        "seed": job.seed,
        "dtype": dtype_of(job.model),
        "tokenizer": tokenizer_digest(job.tokenizer),
        "parameters": parameters_digest(job.model),
    }
    device = next(job.model.parameters()).device.type
    model = {**fingerprint, "name": name or fingerprint["name"], "train_length": job.anatomy.trained.source}
    return Analysis(model, settings, made_with(device), (), (), (), (), files)


def _checked(lengths: Sequence[int], train_length: int, sequences: int) -> list[int]:
    """The lengths in order, the training length among them; refuses those that tell nothing."""
    require(len(lengths) > 0, "give at least one length to analyse")
    require(min(lengths) >= 2, f"a length must be at least 2 tokens, not {min(lengths)}")
    beyond = max(lengths) > train_length
    require(beyond, f"no length is beyond the training length {train_length}, where nothing is wrong; give a larger one")
    require(sequences >= 1, f"sequences must be at least 1, not {sequences}")
    return sorted({*lengths, train_length})


def _cost(length: int) -> float:
    """The cost of a forward, in units of the progress bar."""
    return float(max(length, TOKENS // 2)) ** 2
