"""A pass key in long text: which length methods still find it, by length and depth.

    python -m experiments.rope_passkeys.run MODEL --length 1024 8192 16384 --samples 20 --out runs/passkeys

The package's own task, answered greedily and scored by `lengthwise.evaluate`: prompt and answer together take the length, and
the number stands at every depth in turn. The same command goes on where the last one stopped, and several of them share the
work. OUT/run is a run directory, OUT/MODEL.json and its page hold what came out.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import lengthwise as lw
from experiments._lib import rotary_methods as rotary
from experiments._lib.command import main, option
from experiments._lib.minutes import say, work_for
from experiments._lib.novels import filler
from experiments._lib.results import write_json
from experiments.rope_passkeys import page
from lengthwise.common.text import read_texts, shipped_prose
from lengthwise.methods.spec import TRUNCATE
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load
from lengthwise.records import CellKey, Record, mean_interval, read_lines
from lengthwise.records.directory import CONFIG, RECORDS, read_config
from lengthwise.tasks import TASKS, Sample, Task

TASK = "passkey"
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
# The most important first
NAMES = (
    *(rotary.PLAIN, "streaming_llm", rotary.YARN, rotary.NTK, f"{rotary.YARN_BARE}+{{pmax-layer}}", rotary.INTERPOLATION),
    *("ntk:factor=2,dynamic=true", "rerope:window={half}", "lm_infinite", "window", "log", "infoscale", TRUNCATE),
)


@dataclass(frozen=True, kw_only=True)
class Options(rotary.Options):
    """One call."""

    model: str = option(help="directory, hub name or GGUF file of a causal language model", positional=True)
    lengths: tuple[int, ...] = option((1024, 2048, 4096, 8192, 12288, 16384), "tokens", flag="--length")
    samples: int = option(20, "of each method and length, spread over the depths")
    batch_tokens: int | None = option(None, "tokens of one batch; by default what suits the device")
    train_length: int | None = option(None, "the model's own if not given")

    @property
    def cells(self) -> list[tuple[str, int]]:
        """(method, length), method by method and the shortest first."""
        return [(name, length) for name in self.methods or NAMES for length in sorted(self.lengths)]


def run(options: Options) -> dict[str, Any]:
    """Asks as much as there is time for; writes the results and the page of all that is answered."""
    model, tokenizer = load(options.model, options.dtype, options.device)
    train = anatomy_of(model, options.train_length).train_length
    alignments = rotary.Alignments(model, tokenizer, shipped_prose(), train, options.out / "alignments")
    work_for(options.minutes, partial(_ask_all, options, alignments))
    document = document_of(options, train)
    if document["by_length"]:
        write_json(options.out / f"{Path(options.model).stem}.json", document)
        page.write_pages(options.out, options.out)
    return document


def _ask_all(options: Options, alignments: rotary.Alignments) -> None:
    model, train, run = alignments.model, alignments.train_length, options.out / "run"
    answered, task = {record.key for record in read_lines(run / RECORDS, Record)}, hidden_in(options.books, options.samples)
    told = {"train_length": options.train_length, "batch_tokens": options.batch_tokens, "name": Path(options.model).name}
    told |= {"sharpness": False, "show_progress": False}

    def method_of(name: str, length: int) -> object:
        """Up to the training length an alignment is exactly 1, and is not calibrated."""
        plain = rotary.filled(rotary.split_aligned(name)[0], length, train)
        return plain if length <= train else alignments.method(name, length)

    def tried(name: str, length: int) -> None:
        """Only the method may be refused: another seed or model in this folder is an error of the whole call."""
        method = method_of(name, length)
        with lw.extend(model, [] if method == TRUNCATE else method, train_length=options.train_length):
            pass

    for name, length in options.cells:
        spec, recorded = rotary.filled(name, length, train), recorded_as(name, length, train)
        cell = CellKey(recorded, TASK, "", length)
        if {(cell, index) for index in range(options.samples)} <= answered:
            continue
        say(f"{spec} at {length:,} tokens")
        if rotary.accepted(options.out, spec, length, partial(tried, name, length)):
            methods, tokenizer = {recorded: method_of(name, length)}, alignments.tokenizer
            lw.evaluate(model, tokenizer, methods, {TASK: task}, [length], options.samples, options.seed, run, **told)


def recorded_as(name: str, length: int, train_length: int) -> str:
    """The method's name in the records; an alignment is another one at every length."""
    spec = rotary.filled(name, length, train_length)
    return spec if rotary.split_aligned(name)[1] is None else f"{spec}-{length}"


def hidden_in(books: Sequence[Path], most: int) -> Task:
    """The package's task with books around the number, up to `most` samples a length; its own prose where there are none."""
    sentences = filler([read_texts([path]) for path in books] or [shipped_prose()])
    digest = hashlib.sha256(" ".join(sentences).encode()).hexdigest()[:16]
    named = ", ".join(path.stem for path in books) or "the package's prose"

    # Every method asks for the same ones, and at 16,384 tokens a sample takes half a second to make
    @cache
    def samples(tokenizer: Any, length: int, n: int, seed: int) -> list[Sample]:
        return in_turn(tokenizer, length, most, seed, sentences)[:n]

    depths = ", ".join(map(str, DEPTHS))
    return replace(TASKS[TASK], samples=samples, material=f"{named} ({digest}), at depths {depths} in turn")


def in_turn(tokenizer: Any, length: int, count: int, seed: int, filler: Sequence[str]) -> list[Sample]:
    """The depths one after another; prompt and answer together take the length."""
    task = TASKS[TASK]
    each, room = -(-count // len(DEPTHS)), length - task.answer_tokens
    seeds = [len(DEPTHS) * seed + at for at in range(len(DEPTHS))]
    columns = [task.samples(tokenizer, room, each, *own, filler=filler) for own in zip(seeds, DEPTHS, strict=True)]
    return [sample for row in zip(*columns, strict=True) for sample in row][:count]


def document_of(options: Options, train_length: int) -> dict[str, Any]:
    """The answers so far, by length and by depth."""
    directory, refused = options.out / "run", rotary.read_refused(options.out)
    lines = read_lines(directory / RECORDS, Record)
    config = read_config(directory / CONFIG) if (directory / CONFIG).exists() else {}
    records: dict[tuple[str, int], list[Record]] = {}
    missing = 0
    for name, length in options.cells:
        recorded = recorded_as(name, length, train_length)
        own = [one for one in lines if (one.method, one.length) == (recorded, length) and one.index < options.samples]
        if rotary.refusal(rotary.filled(name, length, train_length), length) not in refused:
            missing += options.samples - len(own)
        if own:
            records[name, length] = own
    beyond: dict[str, list[Record]] = {}
    for (name, length), own in records.items():
        beyond.setdefault(name, []).extend(own if length > train_length else [])
    deep = {(name, at): [one for one in own if one.depth == at] for name, own in beyond.items() for at in DEPTHS}
    return {
        "format": page.FORMAT,
        "command": f"python -m experiments.rope_passkeys.run {options.command}",
        "config": {key: config.get(key) for key in ("model", "settings", "tasks", "made_with")},
        "train_length": train_length,
        "samples": options.samples,
        "missing": missing,
        "refused": refused,
        "by_length": [_score(name, length, own) for (name, length), own in records.items()],
        "by_depth": [_score(name, depth, own) for (name, depth), own in deep.items() if own],
    }


def _score(name: str, at: float, records: Sequence[Record]) -> dict[str, Any]:
    mean, low, high = mean_interval([record.score for record in records])
    return {"method": name, "at": at, "mean": mean, "low": low, "high": high, "n": len(records)}


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))
