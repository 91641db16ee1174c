"""The loaded model of an experiment, and the cells it is asked, as work that several processes share."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import lengthwise as lw
from experiments._lib.processes import Once, share_out
from experiments.attention_alignment.arguments import Sharing
from experiments.attention_alignment.contenders import calibrated_once, contenders, left_out, stages
from experiments.attention_alignment.material import Asked
from experiments.attention_alignment.results import Results
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load
from lengthwise.records import CellKey, Record, read_lines
from lengthwise.records.directory import RECORDS


@dataclass(frozen=True)
class Place:
    """One task at one length, and the methods that are asked there."""

    asked: Asked
    length: int
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    options: Sharing
    model: Any
    tokenizer: Any
    train_length: int

    @classmethod
    def of(cls, options: Sharing) -> Subject:
        model, tokenizer = load(options.model, options.dtype, options.device)
        return cls(options, model, tokenizer, anatomy_of(model, options.train_length).train_length)

    def calibrate(self, methods: Sequence[str]) -> None:
        """What `methods` need, once for all processes."""
        out, lengths = self.options.out, self.options.solved_at
        share_out(calibrated_once(self.model, self.tokenizer, methods, lengths, self.train_length, out))

    def contenders(self, names: Sequence[str]) -> dict[str, object]:
        return contenders(names, self.options.solved_at, self.train_length, self.options.out)

    def measure(self, places: Sequence[Place]) -> None:
        """Samples, alignments, answers; the methods that matter most come first."""
        options, folder = self.options, self.options.out / "samples"
        longest_first = sorted(places, key=lambda place: -place.length)
        share_out([p.asked.once(folder, self.tokenizer, p.length, options.samples, options.seed) for p in longest_first])
        if options.prepare:
            return
        methods = list(dict.fromkeys(name for place in places for name in place.methods))
        self.calibrate(methods)
        known = self.contenders(methods)
        share_out(
            [
                self._cell(place, name, known[name])
                for stage in stages(methods)
                for place in places
                for name in stage
                if name in place.methods and name in known
            ]
        )

    def missing(self, places: Sequence[Place], results: Results) -> int:
        """Answers that were asked for and are not there yet."""
        left = left_out([name for place in places for name in place.methods], self.options.out)
        keys = [CellKey(m, p.asked.name, "", p.length) for p in places for m in p.methods if m not in left]
        return sum(max(0, self.options.samples - len(results.groups.get(key, ()))) for key in keys)

    def _cell(self, place: Place, name: str, method: object) -> Once:
        claim = f".claim-{place.asked.run}-{place.asked.task}-{place.length}-{name}".replace("/", "-")
        key = CellKey(name, place.asked.task, "", place.length)
        file = self.options.out / place.asked.run / RECORDS

        def done() -> bool:
            return _answered(file)[key] >= self.options.samples

        return Once(self.options.out / claim, done, partial(self._answer, place, name, method))

    def _answer(self, place: Place, name: str, method: object) -> None:
        options, asked = self.options, place.asked
        print(f"{asked.name} at {place.length:,} tokens, {name}", file=sys.stderr, flush=True)
        lw.evaluate(
            self.model,
            self.tokenizer,
            {name: method},
            {asked.task: asked.in_files(options.out / "samples", options.samples)},
            [place.length],
            out=options.out / asked.run,
            samples=options.samples,
            seed=options.seed,
            train_length=options.train_length,
            batch_tokens=options.batch_tokens,
            name=options.model,
            sharpness=False,
            show_progress=False,
        )


def _answered(file: Path) -> Counter[CellKey]:
    """Records by cell."""
    return _counted(file, file.stat().st_size) if file.exists() else Counter()


@lru_cache(maxsize=64)
def _counted(file: Path, size: int) -> Counter[CellKey]:
    """`size` tells whether anything was added since."""
    return Counter(record.cell for record in read_lines(file, Record))
