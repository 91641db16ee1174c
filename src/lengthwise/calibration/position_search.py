"""Find the numbers of a position method that a model reads best with: DPE's scales, or LongRoPE's factors.

Candidates are judged by needles: the likelihood of answers that stand far back in prompts, as in LongRoPE2's needle-driven
perplexity; a plain perplexity hardly depends on far tokens. DPE's authors vary the scale of one share of the frequencies at a
time, the others at twice the stretch; LongRoPE's evolve factors that grow from the fastest frequency to the slowest. Here both
climb: from the best of a few known laws to any neighbour under which the answers are likelier, until none is or the time is up.
A candidate is given up once its losses exceed those of the best. One case in four is kept back, and tells what was gained.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lengthwise.calibration.answer_cases import CaseGroup, CaseMaker, FitCase
from lengthwise.calibration.answers import SAMPLES, Losses, task_shares
from lengthwise.calibration.calibrate import asked_tasks, check_lengths, text_source
from lengthwise.common.files import write_whole
from lengthwise.common.progress import ProgressCallback, progress
from lengthwise.errors import require, require_one_of
from lengthwise.methods.positions.dpe import DPE, SCALES
from lengthwise.methods.positions.longrope import LongRoPE
from lengthwise.methods.positions.ntk import Ntk
from lengthwise.methods.positions.yarn import Yarn
from lengthwise.models.anatomy import Anatomy, anatomy_of
from lengthwise.models.extend import Method, extend
from lengthwise.models.fingerprint import model_fingerprint, versions
from lengthwise.models.patches import evaluating
from lengthwise.models.rotary import rotary_of
from lengthwise.models.suitability import refuse_past_the_table
from lengthwise.tasks import without_groups

SEARCHED = ("dpe", "longrope")
FORMAT = "lengthwise.positions/1"
MOST_CANDIDATES = 100
LEAST_GAIN = 1e-3  # nats; less is rounding
SHARES = 8  # of the frequencies, each with a scale
DIGITS = 4  # of a factor

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Space:
    """The search space of one method: where to start, what to try next, and the method made of some numbers."""

    starts: Sequence[Numbers]
    neighbours: Callable[[Numbers, random.Random], Iterator[Numbers]]
    make: Callable[[Numbers], Any]
    describe: Callable[[Numbers], dict[str, Any]]  # what the method reads from a file


@dataclass(frozen=True)
class FoundPositions:
    """The best numbers of a position method at one length, and how they were found; `save` writes what its spec reads."""

    method: str
    numbers: Numbers
    described: dict[str, Any]  # what the method reads
    expects: dict[str, Losses]  # by "plain" and "found", nats of an answer of each task on cases that were not searched with
    train_length: int
    length: int
    model: dict[str, Any]  # fingerprint
    provenance: dict[str, Any]

    def file_content(self) -> dict[str, Any]:
        entries = {"train_length": self.train_length, "length": self.length, "model": self.model, "held_out_nats": self.expects}
        return {"format": FORMAT, "method": self.method, **self.described, **entries, "provenance": self.provenance}

    def save(self, path: str | Path) -> None:
        write_whole(path, json.dumps(self.file_content(), indent=2) + "\n")


def search_positions(
    model: nn.Module,
    tokenizer: Any,
    length: int,
    search: str,
    *,
    train_length: int | None = None,
    files: Sequence[str | Path] = (),
    task: str | Sequence[str] | None = None,
    data: str | Path | None = None,
    sequences: int | None = None,
    seed: int = 0,
    minutes: float = 10.0,
    method: Method = "none",
    show_progress: bool = True,
) -> FoundPositions:
    """Search the numbers of `search`, one of `SEARCHED`, for inputs of `length` tokens; `method` is applied throughout.

    What is asked is as in `calibrate` with the statistic `answers`; `sequences` are made of each task.
    """
    require_one_of("search", search, SEARCHED)
    require(0 < minutes < math.inf, f"minutes must be above 0 and finite, not {minutes}")
    tasks = without_groups(task or ())
    anatomy = anatomy_of(model, train_length)
    sequences = SAMPLES["model"] if sequences is None else sequences
    check_lengths([length], anatomy.train_length, sequences, least=2)
    refuse_past_the_table(anatomy, length)
    source, text = text_source("answers", None, files, tasks, data, False)
    space = {"dpe": dpe_space, "longrope": longrope_space}[search](anatomy, length)
    begun, fingerprint = time.monotonic(), model_fingerprint(anatomy)
    with progress("searching", MOST_CANDIDATES, show_progress) as tick, extend(model, method, train_length=train_length):
        with extend(model, space.make(space.starts[0]), train_length=train_length):
            pass  # or why it cannot be
        asked = {} if files else asked_tasks(tasks, data)
        cases = CaseMaker(model, tokenizer, anatomy, asked, data, text, sequences, seed, tick)
        groups = cases.task_groups(length, anatomy.train_length, task_shares(cases.training_nats()))
        climb = Climb(model, anatomy.train_length, space, groups, seed, begun + 60 * minutes, tick)
        best = climb.run()
        expects = {"plain": climb.held_out(None), "found": climb.held_out(best)}
    provenance = {
        **versions(),
        "asked": source,
        "sequences": sequences,
        "seed": seed,
        "method": method if isinstance(method, str) else repr(method),
        "candidates": len(climb.tried),
        "stopped": climb.stopped,
        "seconds": round(time.monotonic() - begun, 1),
        "path": climb.path,
    }
    described, trained = space.describe(best), anatomy.train_length
    return FoundPositions(search, best, described, expects, trained, length, fingerprint, provenance)


@dataclass
class Climb:
    """The search among the numbers of one method."""

    model: nn.Module
    train_length: int
    space: Space
    groups: Sequence[CaseGroup]
    seed: int
    ends: float  # by the monotonic clock
    tick: ProgressCallback
    tried: dict[Numbers, float] = field(default_factory=dict)  # losses; of one that was given up, what it had reached
    path: list[dict[str, Any]] = field(default_factory=list)  # each that was better than all before
    best: Numbers = ()
    stopped: str = ""  # why the search ended

    def run(self) -> Numbers:
        """Search until no neighbour is better, or the time is up; returns the best numbers."""
        randomness = random.Random(f"positions {self.seed}")
        for start in self.space.starts:
            self._try(start)
        require(bool(self.best), "no start gives finite likelihoods at this length; give a wider --dtype, or another --method")
        while not self.stopped:
            self._climb_once(randomness)
        return self.best

    def _climb_once(self, randomness: random.Random) -> None:
        """Move to the first neighbour that is better, or note why the search stops."""
        best = self.best
        for numbers in self.space.neighbours(best, randomness):
            if numbers not in self.tried:
                if len(self.tried) >= MOST_CANDIDATES:
                    self.stopped = f"after {MOST_CANDIDATES} candidates"
                elif time.monotonic() > self.ends:
                    self.stopped = "when the minutes were up"
                if self.stopped:
                    return
                self._try(numbers)
                if self.best != best:
                    return
        self.stopped = "as no neighbour was better"

    def _try(self, numbers: Numbers) -> None:
        least, loss = self.tried.get(self.best, math.inf) - LEAST_GAIN, 0.0
        with self._reading(numbers):
            for weight, case in self._fitted:
                loss += weight * float(case.loss(self.model))
                if loss >= least:
                    break
        self.tried[numbers] = loss
        shown = " ".join(f"{number:g}" for number in numbers[:SHARES]) + (" ..." if len(numbers) > SHARES else "")
        self.tick(1, f"candidate {len(self.tried)}, {shown}: {f'{loss:.4g} nats' if loss < least else 'not better'}")
        if loss < least:
            self.best = numbers
            self.path.append({"candidate": len(self.tried), "nats": loss, "numbers": list(numbers)})

    @property
    def _fitted(self) -> Iterator[tuple[float, FitCase]]:
        """Cases that are searched with, a few of every task first, and what each weighs."""
        each = [[(group.weight / len(group.fitted), case) for case in group.fitted] for group in self.groups]
        rounds = itertools.zip_longest(*each)
        return (case for cases in rounds for case in cases if case is not None)

    def held_out(self, numbers: Numbers | None) -> Losses:
        """Nats of an answer of each task on cases that were not searched with, of the plain model or with these numbers."""
        with self._reading(numbers):
            return {
                group.name: sum(float(case.loss(self.model)) for case in group.held_out) / len(group.held_out)
                for group in self.groups
            }

    @contextmanager
    def _reading(self, numbers: Numbers | None) -> Iterator[None]:
        method = [] if numbers is None else self.space.make(numbers)
        with extend(self.model, method, train_length=self.train_length), evaluating(self.model), torch.no_grad():
            yield


def dpe_space(anatomy: Anatomy, length: int) -> Space:
    """Powers of two, one for each share of the frequencies; at first the smallest that keeps distances to those trained on."""
    size = anatomy.facts["rotary_size"]
    window = DPE(anatomy.train_length, size).window
    shares = min(SHARES, size // 2)
    fitting = (length - window) / (anatomy.train_length - window)
    stretch = 2 ** math.ceil(math.log2(max(fitting, 2)))
    authors = tuple(float(scale) for scale in SCALES.split("-"))

    def make(numbers: Numbers) -> DPE:
        return DPE(anatomy.train_length, size, "-".join(f"{number:g}" for number in numbers), window)

    def neighbours(numbers: Numbers, _: random.Random) -> Iterator[Numbers]:
        for ratio in (0.5, 2.0, 0.25, 4.0, 0.125, 8.0, 0.0625, 16.0):
            # The slowest frequencies first, which see the fewest distances in training
            for share in reversed(range(len(numbers))):
                scale = numbers[share] * ratio
                if 1 <= scale <= 16 * stretch:
                    yield (*numbers[:share], scale, *numbers[share + 1 :])

    starts = [(scale,) * shares for scale in (float(stretch), 2.0 * stretch)]
    starts += [authors] if shares == len(authors) else []
    return Space(starts, neighbours, make, lambda numbers: {"scales": [int(n) for n in numbers], "window": window})


def longrope_space(anatomy: Anatomy, length: int) -> Space:
    """Factors from 1 on that grow from the fastest frequency to the slowest; at first those of interpolation, NTK and YaRN."""
    stretch, trained = length / anatomy.train_length, rotary_of(anatomy, "longrope").trained.double().cpu()
    g = 1 + math.log(stretch) / math.log(anatomy.train_length)

    def growing(factors: Sequence[float]) -> Numbers:
        bounded = (round(min(max(factor, 1.0), 4 * stretch), DIGITS) for factor in factors)
        return tuple(itertools.accumulate(bounded, max))

    def neighbours(numbers: Numbers, randomness: random.Random) -> Iterator[Numbers]:
        for _ in range(MOST_CANDIDATES):
            first, last = sorted(randomness.choices(range(len(numbers)), k=2))
            ratio = math.exp(randomness.uniform(-0.5, 0.5))
            yield growing([n * ratio if first <= i <= last else n for i, n in enumerate(numbers)])

    yarn = Yarn(stretch, train_length=anatomy.train_length, base=anatomy.facts.get("base")).frequencies(trained, length)
    ntk = Ntk(stretch, train_length=anatomy.train_length).frequencies(trained, length)
    starts = [growing((trained / law).tolist()) for law in (yarn, ntk, trained / stretch)]
    read = {"factor": stretch, "original_max_position_embeddings": anatomy.train_length}
    return Space(
        starts,
        neighbours,
        lambda numbers: LongRoPE(anatomy.train_length, numbers, None, g),
        lambda numbers: {"long_factor": list(numbers), **read},
    )
