"""Find the temperature at which attention at length is as sharp as it was at training length (Chi et al., Algorithm 1),
or, with the statistic `answers`, the one under which the model best tells answers that it can know (answers.py).

`grid` is the paper's search: eleven long forwards, tau = 1.00, 0.95 ... 0.50, the nearest wins. `solve` needs three. Scopes
`layer` and `head` need one: each layer is solved as the forward reaches it, and the forward goes on with what was found.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lengthwise.calibration.answer_cases import DEFAULT_TASKS, CaseMaker
from lengthwise.calibration.answers import SAMPLES, STEPS, fit_to_answers
from lengthwise.calibration.at_length import Batch, LengthCalibration, LengthResult, sharpness_of
from lengthwise.calibration.search import GRID
from lengthwise.common.arguments import require_tokenizer, typed
from lengthwise.common.progress import progress
from lengthwise.common.sequences import cut_rows, long_sequences, pad_rows, short_sequences, token_rows
from lengthwise.common.text import parse_lengths, text_or_prose
from lengthwise.errors import require, require_one_of
from lengthwise.methods.temperature.aligned import SCOPES, STATISTICS, Alignment
from lengthwise.models.anatomy import Anatomy, anatomy_of, vocabulary
from lengthwise.models.extend import Method, extend
from lengthwise.models.fingerprint import model_fingerprint, versions
from lengthwise.models.layer import active_slots
from lengthwise.models.suitability import refuse_past_the_table
from lengthwise.models.t5_head import warn_if_flattened
from lengthwise.tasks import Task, find_task, without_groups
from lengthwise.tasks.making import make_samples

SEARCHES = ("solve", "grid")


@typed
def calibrate(
    model: nn.Module,
    tokenizer: Any,
    length: int | Sequence[int],
    *,
    statistic: str = "pmax",
    scope: str = "model",
    search: str = "solve",
    train_length: int | None = None,
    text: str | None = None,
    files: Sequence[str | Path] = (),
    input_ids: Any = None,
    task: str | Sequence[str] | None = None,
    data: str | Path | None = None,
    sequences: int | None = None,
    seed: int = 0,
    minutes: float | None = None,
    method: Method = "none",
    show_progress: bool = True,
) -> Alignment:
    """The alignment of `model` at one length or several; `lengthwise.extend` takes it as a method.

    Sequences come from `text`, from `files`, from samples of a `task`, or from prose that ships with lengthwise; `sequences`
    are read at each length, 1 by default. `method` is applied throughout, so that an alignment can be made on top of others.
    A model without a tokenizer (None) is given `input_ids`: a tensor of [sequences, tokens], lists, or a dataset.

    The statistic `answers` asks samples of several tasks, four by default, `sequences` of each; a task's questions, or its
    cases, can come from `data`. With `text` or `files` it asks for words that stand far back in the text. After `minutes` the
    best temperatures so far are taken.
    """
    tasks = tuple(without_groups(task or ()))
    check_choices(statistic, scope, search, tasks, data)
    require(
        minutes is None or statistic == "answers", f"minutes are for the statistic answers; {statistic} takes a few forwards"
    )
    require(minutes is None or 0 < minutes < math.inf, f"minutes must be above 0 and finite, not {minutes}")
    lengths = sorted(set(parse_lengths(length)))
    anatomy = anatomy_of(model, train_length)
    sequences = sequences if sequences is not None else SAMPLES[scope] if statistic == "answers" else 1
    check_lengths(lengths, anatomy.train_length, sequences, least=2 if statistic == "answers" else 1)
    fingerprint, outer = model_fingerprint(anatomy), active_slots(anatomy)
    # Before shorter lengths are read
    refuse_past_the_table(anatomy, max(lengths))
    asked = {} if text is not None or files else asked_tasks(tasks, data)
    rows = None if input_ids is None else token_rows(input_ids, vocabulary(model))
    require(rows is None or statistic != "answers", "answers are asked for in words; with input_ids keep pmax or entropy")
    require(rows is not None or tokenizer is not None, "without a tokenizer no text can be read; give input_ids")
    if rows is None:
        require_tokenizer(tokenizer)
    source, text = text_source(statistic, text, files, tasks, data, rows is not None)
    with extend(model, method, train_length=train_length):
        # All slots together, whoever filled them
        if (slots := active_slots(anatomy)) is not None:
            slots.refuse_adaptive()
        if statistic == "answers":
            warn_if_flattened(model)
            with progress("calibrating", len(lengths) * STEPS, show_progress) as tick:
                cases = CaseMaker(model, tokenizer, anatomy, asked, data, text, sequences, seed, tick)
                results = fit_to_answers(cases, lengths, scope, minutes)
        else:
            cut = partial(short_and_long, tokenizer, text if rows is None else rows, tasks[0] if tasks else None)
            read = {n: cut(n, anatomy.train_length, sequences, seed) for n in lengths}
            results = _by_sharpness(model, anatomy, read, statistic, scope, search, show_progress)
    for line in (line for result in results for line in result.missed):
        warnings.warn(line, stacklevel=3)
    provenance = {
        "train_length": anatomy.trained.source,
        "text": source,
        "sequences": sequences,
        "seed": seed,
        "search": "answers" if statistic == "answers" else search if scope == "model" else "one pass",
        "method": method if isinstance(method, str) else repr(method),
    }
    if minutes is not None:
        provenance["minutes"] = minutes
    if outer is not None:
        provenance["extended_with"] = outer.names
    return _alignment(anatomy, fingerprint, statistic, scope, results, provenance)


def _by_sharpness(
    model: nn.Module,
    anatomy: Anatomy,
    batches: dict[int, tuple[Batch, Batch]],
    statistic: str,
    scope: str,
    search: str,
    show_progress: bool,
) -> list[LengthResult]:
    """The temperatures that keep a statistic of attention, by length."""
    forwards = {"grid": len(GRID), "solve": 3}[search] if scope == "model" else 1
    results: list[LengthResult] = []
    with progress("calibrating", len(batches) * (forwards + 1) * len(anatomy.layers), show_progress) as tick:
        for n, (short, long) in batches.items():
            shorter = sharpness_of([result.entry for result in results])
            at_length = LengthCalibration(model, anatomy, statistic, n, short, long, shorter, tick)
            results.append(at_length.search(search) if scope == "model" else at_length.in_one_pass(scope))
    return results


def _alignment(
    anatomy: Anatomy, model: dict[str, Any], statistic: str, scope: str, results: list[LengthResult], provenance: dict[str, Any]
) -> Alignment:
    """The calibrated lengths as an alignment, with how they were obtained."""
    dtype = str(next(anatomy.stack.parameters()).dtype).removeprefix("torch.")
    return Alignment(
        statistic=statistic,
        scope=scope,
        train_length=anatomy.train_length,
        target=results[-1].entry.target or 0.0,
        temperatures=tuple(result.entry for result in results),
        model=model,
        provenance={**versions(), "dtype": dtype, **provenance, "searched": [result.provenance for result in results]},
    )


def check_choices(statistic: str, scope: str, search: str, tasks: Sequence[str], data: object = None) -> None:
    """Refuse names that do not exist, and what does not go together, for which no model is needed."""
    require_one_of("statistic", statistic, STATISTICS)
    require_one_of("scope", scope, SCOPES)
    require_one_of("search", search, SEARCHES)
    for task in tasks:
        find_task(task)
    fits = search != "grid" or scope == "model"
    require(fits, f"--search grid is Algorithm 1, which has scope model; scope {scope} needs --search solve")
    if statistic == "answers":
        require(search != "grid", "--search grid is Algorithm 1, which keeps pmax or entropy; leave it out with answers")
        require(data is None or len(tasks) == 1, f"--data holds questions of one task; give one --task, not {len(tasks)}")
    else:
        several = f"--statistic {statistic} reads samples of one task, not of {len(tasks)}; several go with answers"
        require(len(tasks) <= 1, several)
        require(data is None, f"--data holds questions with answers, which --statistic {statistic} does not ask")


def check_lengths(lengths: list[int], train_length: int, sequences: int, least: int) -> None:
    """Refuse lengths that need no calibration, and fewer sequences than it takes."""
    require(bool(lengths), "give at least one length to calibrate for")
    problem = f"length {lengths[0]} is not above the training length {train_length}: there the model needs no help"
    require(lengths[0] > train_length, f"{problem}; give a larger --length, or the right --train-length")
    asked = "; with answers some are fitted and others asked" if least > 1 else ""
    require(sequences >= least, f"sequences must be at least {least}, not {sequences}{asked}")


def text_source(
    statistic: str, text: str | None, files: Sequence[str | Path], tasks: Sequence[str], data: str | Path | None, ids: bool
) -> tuple[str, str]:
    """(description, text) of what is read. With a task the text is only prose whose predictions `answers` must not change."""
    sources = sum((text is not None, bool(files), bool(tasks), ids))
    require(sources <= 1, "give a text, text files, input_ids or a task, not several of them")
    if ids:
        return "given input_ids", ""
    if tasks and statistic != "answers":
        return f"task {tasks[0]}", ""
    source, text = text_or_prose(text, files)
    if statistic != "answers":
        return source, text
    if sources and not tasks:
        return f"words that stand far back in {source}", text
    return f"answers to {', '.join(tasks or DEFAULT_TASKS)}{f' of {Path(data).name}' if data else ''}; {source}", text


def asked_tasks(tasks: Sequence[str], data: str | Path | None) -> dict[str, Task]:
    """By name, the tasks whose answers are fitted, their samples made of the user's material where they can be."""
    asked = {name: find_task(name) for name in tasks or DEFAULT_TASKS}
    return {name: task if data is None or task.take is None else task.of(Path(data)) for name, task in asked.items()}


def short_and_long(
    tokenizer: Any, text: str | list[Tensor], task: str | None, length: int, train_length: int, sequences: int, seed: int
) -> tuple[Batch, Batch]:
    """The batches (short, long): cut from the same text or rows of token ids, or samples of the same task."""
    if not isinstance(text, str):
        long = cut_rows(text, length, sequences, seed)
        return {"input_ids": short_sequences(None, long, train_length)}, {"input_ids": long}
    if task is None:
        long = long_sequences(tokenizer, text, length, sequences, seed)
        return {"input_ids": short_sequences(tokenizer, long, train_length)}, {"input_ids": long}

    def samples(length: int, count: int) -> Batch:
        prompts = [sample.prompt for sample in make_samples(task, find_task(task), tokenizer, length, count, seed)]
        rows = [tokenizer(prompt, verbose=False).input_ids for prompt in prompts]
        ids, mask = pad_rows(rows, 0, left=False)
        return {"input_ids": ids, "attention_mask": mask}

    return samples(train_length, 8 * sequences), samples(length, sequences)
