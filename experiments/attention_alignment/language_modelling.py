"""Perplexity by length: the paper's Tables 3 and 8, for any encoder-decoder or decoder.

    python -m experiments.attention_alignment.language_modelling embedded --no-sentinel --text novel.txt \
        --length 512 4096 --out runs/embedded

The same continuations at every length and under every method, so that a column over the training length's is a ratio on the
same tokens; the training length's own column is also what truncation gives at any length beyond. A perplexity has no place
among the records of `lengthwise evaluate`, whose scores run from 0 to 1, so what every token cost is kept by itself; truncation
and hedged methods are computed from it. Several of one command share the work, and the same command goes on where the last one
stopped. OUT then holds language_modelling.json and .md, and the likelihoods in language_modelling/.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from experiments._lib.command import exit_status
from experiments._lib.likelihood_cells import Cells
from experiments._lib.processes import share_out, work_for
from experiments.attention_alignment.arguments import LENGTHS, SEVERAL, Sharing, given, parser_of, sharing
from experiments.attention_alignment.contenders import NAMES, left_out, stages
from experiments.attention_alignment.facts import facts_of
from experiments.attention_alignment.language_modelling_page import write_outcome
from experiments.attention_alignment.likelihoods import FOLDER, Likelihoods, begun, measured_as
from experiments.attention_alignment.subject import Subject
from lengthwise.common.text import text_or_prose
from lengthwise.errors import require
from lengthwise.evaluation.likelihood import continuation_nll
from lengthwise.evaluation.sweep.run_config import dtype_of, made_with, parameters_digest, tokenizer_digest
from lengthwise.models.anatomy import anatomy_of, unwrapped
from lengthwise.models.fingerprint import fingerprint_of
from lengthwise.tasks.language_modelling import frame_of, framed, passages


@dataclass(frozen=True)
class Options(Sharing):
    lengths: tuple[int, ...] = LENGTHS
    text: tuple[str, ...] = ()  # files; the package's prose when empty
    continuation: int = 64  # tokens told at each place
    sentinel: bool = True

    def __post_init__(self) -> None:
        require(self.samples >= 2, f"--cases must be at least 2, for intervals, not {self.samples}")
        require(min(self.lengths, default=0) >= 1, f"a length must be at least 1 token, not {min(self.lengths, default=None)}")

    @property
    def read_at(self) -> tuple[int, ...]:
        return self.lengths


def language_modelling(options: Options) -> Likelihoods:
    """Measures as much as there is time for, and writes the page of what has been measured so far, by any process."""
    subject = Subject.of(options)
    lengths = sorted({subject.train_length, *options.lengths})
    source, text = text_or_prose(None, options.text)
    names = options.methods or NAMES
    begun(options.out, _config(options, subject, text, lengths[-1]))
    # Places in the text are found in seconds: nothing is to be prepared
    if not (options.page or options.prepare):
        work_for(options.minutes, partial(_measure, options, subject, text, lengths))
    found = Likelihoods.read(options.out)
    if found.cells:
        facts = facts_of("language_modelling", options, subject.model, names, {})
        facts |= {"text": source, "cases": options.samples, "continuation": options.continuation, "sentinel": options.sentinel}
        facts |= {"made_with": found.made_with, "missing": _missing(options, found, names, lengths)}
        print(write_outcome(options.out, found, facts, names))
    return found


def _missing(options: Options, found: Likelihoods, names: Sequence[str], lengths: Sequence[int]) -> int:
    """Cells that were asked for and are not there yet."""
    left = left_out(names, options.out)
    return sum(found.nll(name, length) is None for name in names if name not in left for length in lengths)


def _config(options: Options, subject: Subject, text: str, longest: int) -> dict[str, Any]:
    """What likelihoods depend on; places in the text follow from the longest prefix."""
    settings = {
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
    fingerprint = fingerprint_of(anatomy_of(subject.model, options.train_length))
    device = next(subject.model.parameters()).device.type
    return {"model": {**fingerprint, "name": options.model}, "settings": settings, "made_with": made_with(device)}


def _measure(options: Options, subject: Subject, text: str, lengths: Sequence[int]) -> None:
    frame = frame_of(subject.tokenizer, bool(unwrapped(subject.model).config.is_encoder_decoder), options.sentinel)
    prefix = frame.prefix_tokens(lengths[-1], options.continuation)
    places = passages(subject.tokenizer, text, prefix, options.continuation, options.samples, options.seed)
    names = measured_as(options.methods or NAMES)
    subject.calibrate(names)
    known, cells = subject.contenders(names), Cells(options.out / FOLDER)

    def measured(name: str, length: int) -> tuple[Tensor, float]:
        print(f"{name} at {length:,} tokens", file=sys.stderr, flush=True)
        start = time.perf_counter()
        read = framed(frame, places, length, options.continuation)
        how: Any = {"skipped": len(frame.lead), "method": known[name], "train_length": options.train_length}
        return continuation_nll(subject.model, *read, **how), time.perf_counter() - start

    order = [(name, length) for stage in stages(names) for length in lengths for name in stage if name in known]
    share_out([cells.once(name, name, length, partial(measured, name, length)) for name, length in order])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sharing(parser_of(__doc__))
    parser.add_argument("--text", default=[], help="files; by default the package's prose", **SEVERAL)
    parser.add_argument("--length", dest="lengths", type=int, default=None, help="beside the training length", **SEVERAL)
    parser.add_argument("--cases", dest="samples", type=int, default=Sharing.samples, help="places in the text")
    parser.add_argument("--continuation", type=int, default=Options.continuation, help="tokens told at each place")
    parser.add_argument(
        "--no-sentinel", dest="sentinel", action="store_false", help="for models trained to go on with a prefix"
    )
    return exit_status(lambda: language_modelling(Options(**given(parser, arguments))))


if __name__ == "__main__":
    sys.exit(main())
