"""Find the temperature at which attention at length is as sharp as it was at training length (Chi et al., Algorithm 1).

`grid` is the paper's search: eleven long forwards, tau = 1.00, 0.95 ... 0.50, the nearest wins. `solve` needs three. Scopes
`layer` and `head` need one: each layer is solved as the forward reaches it, and the forward goes on with what was found.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.calibration.at_length import Batch, LengthCalibration, LengthResult, sharpness_of
from lengthwise.calibration.search import GRID
from lengthwise.common.progress import progress
from lengthwise.common.sequences import long_sequences, pad_rows, short_sequences
from lengthwise.common.text import parse_lengths, text_or_prose
from lengthwise.errors import require, require_one_of
from lengthwise.methods.temperature.aligned import SCOPES, STATISTICS, Alignment
from lengthwise.models.anatomy import Anatomy, anatomy_of
from lengthwise.models.extend import Method, extend
from lengthwise.models.fingerprint import model_fingerprint, versions
from lengthwise.models.layer import active_slots
from lengthwise.models.suitability import refuse_past_the_table
from lengthwise.tasks import TASKS

SEARCHES = ("solve", "grid")


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
    task: str | None = None,
    sequences: int = 1,
    seed: int = 0,
    method: Method = "none",
    show_progress: bool = True,
) -> Alignment:
    """The alignment of `model` at one length or several; `lengthwise.extend` takes it as a method.

    Sequences come from `text`, from `files`, from samples of a `task`, or from prose that ships with lengthwise. `method` is
    applied throughout, so that an alignment can be made on top of other methods.
    """
    check_choices(statistic, scope, search, task)
    lengths = sorted(set(parse_lengths(length)))
    anatomy = anatomy_of(model, train_length)
    _check_lengths(lengths, anatomy.train_length, sequences)
    fingerprint, outer = model_fingerprint(anatomy), active_slots(anatomy)
    source, text = _text_source(text, files, task)
    batches = {n: short_and_long(tokenizer, text, task, n, anatomy.train_length, sequences, seed) for n in lengths}
    # Before shorter lengths are read
    refuse_past_the_table(anatomy, max(long["input_ids"].shape[1] for _, long in batches.values()))

    forwards = {"grid": len(GRID), "solve": 3}[search] if scope == "model" else 1
    total = len(lengths) * (forwards + 1) * len(anatomy.layers)
    results: list[LengthResult] = []
    with extend(model, method, train_length=train_length), progress("calibrating", total, show_progress) as tick:
        # All slots together, whoever filled them
        if (slots := active_slots(anatomy)) is not None:
            slots.refuse_adaptive()
        for n, (short, long) in batches.items():
            shorter = sharpness_of([result.entry for result in results])
            at_length = LengthCalibration(model, anatomy, statistic, n, short, long, shorter, tick)
            results.append(at_length.search(search) if scope == "model" else at_length.in_one_pass(scope))
    for line in (line for result in results for line in result.missed):
        warnings.warn(line, stacklevel=2)
    provenance = {
        "text": source,
        "sequences": sequences,
        "seed": seed,
        "search": search if scope == "model" else "one pass",
        "method": method if isinstance(method, str) else repr(method),
    }
    if outer is not None:
        provenance["extended_with"] = outer.names
    return _alignment(anatomy, fingerprint, statistic, scope, results, provenance)


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


def check_choices(statistic: str, scope: str, search: str, task: str | None) -> None:
    """Refuse names that do not exist, for which no model is needed."""
    require_one_of("statistic", statistic, STATISTICS)
    require_one_of("scope", scope, SCOPES)
    require_one_of("search", search, SEARCHES)
    if task is not None:
        require_one_of("task", task, tuple(TASKS))
    fits = search != "grid" or scope == "model"
    require(fits, f"--search grid is Algorithm 1, which has scope model; scope {scope} needs --search solve")


def _check_lengths(lengths: list[int], train_length: int, sequences: int) -> None:
    require(bool(lengths), "give at least one length to calibrate for")
    told = f"length {lengths[0]} is not above the training length {train_length}: there the model needs no temperature"
    require(lengths[0] > train_length, f"{told}; give a larger --length, or the right --train-length")
    require(sequences >= 1, f"sequences must be at least 1, not {sequences}")


def _text_source(text: str | None, files: Sequence[str | Path], task: str | None) -> tuple[str, str]:
    """(description, text) of what sequences are cut from; a task has no text."""
    sources = sum((text is not None, bool(files), task is not None))
    require(sources <= 1, "give a text, text files or a task, not several of them")
    if task is not None:
        return f"task {task}", ""
    return text_or_prose(text, files)


def short_and_long(
    tokenizer: Any, text: str, task: str | None, length: int, train_length: int, sequences: int, seed: int
) -> tuple[Batch, Batch]:
    """The batches (short, long): cut from the same text, or samples of the same task."""
    if task is None:
        long = long_sequences(tokenizer, text, length, sequences, seed)
        return {"input_ids": short_sequences(tokenizer, long, train_length)}, {"input_ids": long}

    def samples(length: int, count: int) -> Batch:
        prompts = [sample.prompt for sample in TASKS[task].samples(tokenizer, length, count, seed)]
        rows = [tokenizer(prompt, verbose=False).input_ids for prompt in prompts]
        ids, mask = pad_rows(rows, tokenizer.pad_token_id or 0, left=False)
        return {"input_ids": ids, "attention_mask": mask}

    return samples(train_length, 8 * sequences), samples(length, sequences)
