"""Code completion and code key retrieval by length: Tables 6, 11, 12 and 13 and section 5.4, for any T5.

    python -m experiments.code.run MODEL --out runs/model
    python -m experiments.code.run MODEL --files FOLDER --out runs/model
    python -m experiments.code.run MODEL --held-out --out runs/model          modules that no training here reads

Bucket n is asked with prompts of 1000 n + 500 tokens, which end before the same lines at every length; the code is Python's
standard library, or that of a folder.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments._lib import alignments, held_out, measure, page, results
from experiments._lib.command import main, option
from experiments._lib.gains import gains, pmax_over
from experiments._lib.measure import Answers, Asked, Place, Subject
from experiments.code.page import BUCKET, COMPLETION, FORMAT, KEY, write_pages
from lengthwise.errors import require
from lengthwise.tasks import TASKS
from lengthwise.tasks.material.code_files import standard_library

# A run directory each: completion has many records
RUNS: dict[str, dict[str, str]] = {f"run-{COMPLETION}": {}, f"run-{KEY}": {}}
# Layers and heads aligned by entropy, and heads by P_max, are left to key retrieval: completion has fifteen lengths
METHODS = tuple(name for name in alignments.NAMES if name not in ("pmax-head", "entropy-layer", "entropy-head"))


@dataclass(frozen=True, kw_only=True)
class Options(measure.Options):
    files: Path | None = option(None, "folder of code; Python's standard library if not given")
    held_out: bool = option(False, "only modules of the standard library that no training reads")
    buckets: tuple[int, ...] = option(tuple(page.paper(__file__)["buckets"]), "thousands of tokens", flag="--bucket")
    key_lengths: tuple[int, ...] = option((4096, 8192, 16000), "tokens of key retrieval", flag="--key-length")

    def __post_init__(self) -> None:
        require(not (self.held_out and self.files), "--held-out asks about the standard library; leave --files out")

    @property
    def read_at(self) -> tuple[int, ...]:
        return (*map(length_of, self.buckets), *self.key_lengths)


def length_of(bucket: int) -> int:
    """Tokens of our prompts in a bucket: its middle."""
    return BUCKET * bucket + BUCKET // 2


def code(options: Options) -> Answers:
    """Measures as much as there is time for, and writes the page of what has been measured so far."""
    subject = Subject.of(options)
    places = _places(options)
    subject.measure(places)
    answers = Answers.read(options.out, subject.train_length, RUNS)
    if answers.records:
        document = subject.document("code", places, answers, RUNS)
        more = {"gains": gains(answers), "pmax_over": pmax_over(answers)}
        results.write(options.out / "code.json", FORMAT, document["command"], {**document, **more})
        write_pages(options.out, options.out)
    return answers


def _places(options: Options) -> list[Place]:
    """Key retrieval between the buckets, so that both are measured as far as time goes."""
    completion, key = (_asked(task, options) for task in (COMPLETION, KEY))
    places = [Place(completion, length_of(bucket), options.methods or METHODS) for bucket in options.buckets]
    places += [Place(key, length, options.methods or alignments.NAMES) for length in options.key_lengths]
    return sorted(places, key=lambda place: place.length)


def _asked(task: str, options: Options) -> Asked:
    made = TASKS[task] if options.files is None else TASKS[task].of(options.files)
    samples, material = made.samples, made.material
    if options.held_out:
        files = tuple(filter(held_out.code, standard_library()))
        samples, material = partial(samples, files=files), f"{len(files)} held-out modules of {material}"
    return Asked(task, task, f"run-{task}", samples, f"code of {material}")


if __name__ == "__main__":
    sys.exit(main(Options, code, __doc__))
