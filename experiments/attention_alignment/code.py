"""Code completion by length and code key retrieval: the paper's Tables 6, 11, 12, 13 and section 5.4, for any T5.

    python -m experiments.attention_alignment.code embedded --out runs/embedded
    python -m experiments.attention_alignment.code MODEL --files FOLDER --out runs/model

Bucket n is asked with prompts of 1000 n + 500 tokens, which end before the same lines at every length; the code is Python's
standard library, or that of a folder. Several of one command share the work, and the same command goes on where the last one
stopped. OUT then holds code.json and code.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments._lib.command import exit_status
from experiments._lib.processes import work_for
from experiments.attention_alignment.arguments import SEVERAL, Sharing, given, parser_of, sharing
from experiments.attention_alignment.code_outcome import BUCKETS, COMPLETION, KEY, RUNS, length_of, write_outcome
from experiments.attention_alignment.contenders import NAMES
from experiments.attention_alignment.facts import facts_of
from experiments.attention_alignment.material import Asked
from experiments.attention_alignment.results import Results, made_with, materials, read_results
from experiments.attention_alignment.subject import Place, Subject
from lengthwise.errors import require
from lengthwise.tasks import TASKS

KEY_LENGTHS = (4096, 8192, 16000)
# Layers and heads aligned by entropy, and heads by P_max, are left to key retrieval: completion has fifteen lengths
METHODS = tuple(name for name in NAMES if name not in ("pmax-head", "entropy-layer", "entropy-head"))


@dataclass(frozen=True)
class Options(Sharing):
    files: Path | None = None  # a folder of code
    buckets: tuple[int, ...] = BUCKETS
    key_lengths: tuple[int, ...] = KEY_LENGTHS

    def __post_init__(self) -> None:
        super().__post_init__()
        require(min(self.buckets, default=0) >= 1, f"a bucket is 1 or more, 1 for 1000 to 2000 tokens, not {self.buckets[:1]}")
        require(min(self.key_lengths, default=0) >= 1, f"a length must be at least 1 token, not {self.key_lengths[:1]}")

    @property
    def read_at(self) -> tuple[int, ...]:
        return (*map(length_of, self.buckets), *self.key_lengths)


def code(options: Options) -> Results:
    """Measures as much as there is time for, and writes the page of what has been measured so far, by any process."""
    subject = Subject.of(options)
    places = _places(options)
    if not options.page:
        work_for(options.minutes, partial(subject.measure, places))
    results = read_results(options.out, subject.train_length, RUNS)
    if results.records:
        facts = facts_of("code", options, subject.model, options.methods or NAMES, materials(options.out, RUNS))
        facts["made_with"] = made_with(options.out, RUNS)
        facts["missing"] = subject.missing(places, results)
        print(write_outcome(options.out, results, facts))
    return results


def _places(options: Options) -> list[Place]:
    """Key retrieval between the buckets, so that both are measured as far as time goes."""
    completion, key = (_asked(task, options.files) for task in (COMPLETION, KEY))
    found = [Place(completion, length_of(bucket), options.methods or METHODS) for bucket in options.buckets]
    found += [Place(key, length, options.methods or NAMES) for length in options.key_lengths]
    return sorted(found, key=lambda place: place.length)


def _asked(task: str, files: Path | None) -> Asked:
    usual = TASKS[task]
    made = usual if files is None else usual.of(files)
    # A run directory of its own: completion has many records
    return Asked(task, task, next(run for run in RUNS if run.endswith(task)), made.samples, f"code of {made.material}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sharing(parser_of(__doc__))
    parser.add_argument("--files", type=Path, help="folder of code; Python's standard library if not given")
    parser.add_argument(
        "--bucket", dest="buckets", type=int, default=None, help="thousands of tokens; 1 ... 15 if none", **SEVERAL
    )
    parser.add_argument("--key-length", dest="key_lengths", type=int, default=None, help="of key retrieval, tokens", **SEVERAL)

    def call() -> Options:
        found = {key: value for key, value in given(parser, arguments).items() if value is not None}
        return Options(**found)

    return exit_status(lambda: code(call()))


if __name__ == "__main__":
    sys.exit(main())
