"""Perplexity by length: Tables 3 and 8, for any encoder-decoder or decoder.

    python -m experiments.language_modelling.run embedded --no-sentinel --text novel.txt --length 512 4096 --out runs/embedded

The same continuations at every length and under every method, so that a column over the training length's is a ratio on the
same tokens; the training length's column is also what truncation gives at any length beyond. What every token cost is kept;
truncation and hedged methods are computed from it.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from torch import Tensor

from experiments._lib import alignments, measure, results
from experiments._lib.command import main, option
from experiments._lib.likelihood_cells import FOLDER, Cells, Likelihoods, measured_as
from experiments._lib.measure import LENGTHS, Subject
from experiments._lib.minutes import say, work_for
from experiments._lib.results import kept_settings
from experiments.language_modelling.page import FORMAT, write_pages
from lengthwise.common.text import text_or_prose
from lengthwise.evaluation.likelihood import continuation_nll
from lengthwise.evaluation.sweep.run_config import dtype_of, made_with, parameters_digest, tokenizer_digest
from lengthwise.models.anatomy import unwrapped
from lengthwise.tasks.language_modelling import frame_of, framed, passages, scores
from lengthwise.tasks.perplexity import compared

MIXED = "hedge+none"  # what mixing two readings gives by itself, without a temperature


@dataclass(frozen=True, kw_only=True)
class Options(measure.Options):
    samples: int = option(100, "places in the text", flag="--cases")
    lengths: tuple[int, ...] = option(LENGTHS, "beside the training length", flag="--length")
    text: tuple[str, ...] = option((), "files; by default the package's prose")
    continuation: int = option(64, "tokens told at each place")
    sentinel: bool = option(True, "for models trained to go on with a prefix")

    @property
    def read_at(self) -> tuple[int, ...]:
        return self.lengths


def language_modelling(options: Options) -> Likelihoods:
    """Measures as much as there is time for, and writes the page of what has been measured so far."""
    subject = Subject.of(options)
    lengths = sorted({subject.train_length, *options.lengths})
    source, text = text_or_prose(None, options.text)
    names = options.methods or alignments.NAMES
    device = next(subject.model.parameters()).device.type
    kept_settings(options.out / FOLDER, _settings(options, subject, text, lengths[-1]), made_with=made_with(device))
    work_for(options.minutes, partial(_measure, options, subject, text, lengths))
    likelihoods = Likelihoods.read(options.out)
    if likelihoods.cells:
        facts = subject.facts("language_modelling", {})
        facts |= {"text": source, "cases": options.samples, "continuation": options.continuation, "sentinel": options.sentinel}
        # Cells that were asked for and are not there yet
        missing = sum(likelihoods.nll(name, length) is None for name in names for length in lengths)
        facts |= {"made_with": likelihoods.made_with, "missing": missing}
        taus = alignments.temperatures(likelihoods.lengths, likelihoods.train_length, options.out)
        content = {**facts, "cells": cells(likelihoods, names), "temperatures": taus}
        results.write(options.out / "language_modelling.json", FORMAT, facts["command"], content)
        write_pages(options.out, options.out)
    return likelihoods


def cells(likelihoods: Likelihoods, names: Sequence[str]) -> list[dict[str, Any]]:
    """Perplexity and its ratio to that at the training length: the methods named, whatever else was measured, a plain hedge."""
    measured = dict.fromkeys(method for method, _ in likelihoods.cells)
    rows = []
    for method in dict.fromkeys((*names, *measured, MIXED)):
        known = {length: likelihoods.nll(method, length) for length in likelihoods.lengths}
        nll = {length: table for length, table in known.items() if table is not None}
        base = nll.get(likelihoods.train_length)
        for score in scores(nll):
            ratio = None if base is None else asdict(compared(nll[score.length], base))
            rows.append({"method": method, **asdict(score), "ratio": ratio, "nll": nll[score.length].mean(1).tolist()})
    return rows


def _settings(options: Options, subject: Subject, text: str, longest: int) -> dict[str, Any]:
    """What likelihoods depend on; places in the text follow from the longest prefix."""
    return {
        "train_length": subject.train_length,
        "longest": longest,
        "cases": options.samples,
        "continuation": options.continuation,
        "sentinel": options.sentinel,
        "seed": options.seed,
        "text": hashlib.sha256(text.encode()).hexdigest()[:16],
        "dtype": dtype_of(subject.model),
        "tokenizer": tokenizer_digest(subject.tokenizer),
        "parameters": parameters_digest(subject.model),
    }


def _measure(options: Options, subject: Subject, text: str, lengths: Sequence[int]) -> None:
    frame = frame_of(subject.tokenizer, bool(unwrapped(subject.model).config.is_encoder_decoder), options.sentinel)
    prefix = frame.prefix_tokens(lengths[-1], options.continuation)
    places = passages(subject.tokenizer, text, prefix, options.continuation, options.samples, options.seed)
    names = measured_as(options.methods or alignments.NAMES)
    known, done = subject.contenders(names), Cells(options.out / FOLDER)

    def measured(name: str, length: int) -> tuple[Tensor, float]:
        say(f"{name} at {length:,} tokens")
        start = time.perf_counter()
        read = framed(frame, places, length, options.continuation)
        how: Any = {"skipped": len(frame.lead), "method": known[name], "train_length": options.train_length}
        return continuation_nll(subject.model, *read, **how), time.perf_counter() - start

    for name, length in ((name, length) for stage in alignments.stages(names) for length in lengths for name in stage):
        done.once(name, name, length, partial(measured, name, length))


if __name__ == "__main__":
    sys.exit(main(Options, language_modelling, __doc__))
