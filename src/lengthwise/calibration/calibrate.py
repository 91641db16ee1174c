"""Find the temperature at which attention at length is as sharp as it was at training length (Chi et al., Algorithm 1).

`grid` is the paper's search: eleven long forwards, tau = 1.00, 0.95 ... 0.50, the nearest wins. `solve` needs three. Scopes
`layer` and `head` need one: each layer is solved as the forward reaches it, and the forward goes on with what was found.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.calibration.align import AlignInPass, AtSharpness, Ladder
from lengthwise.calibration.measure import AttentionStatistics, Means, refuse_nan, run_stack
from lengthwise.calibration.search import FLATTEST, GRID, SHARPEST, TOLERANCE, Point, Search, grid_search, solve
from lengthwise.common.progress import ProgressCallback, progress
from lengthwise.common.sequences import long_sequences, pad_rows, short_sequences
from lengthwise.common.text import parse_lengths, text_or_prose
from lengthwise.errors import BadInput, did_you_mean, require
from lengthwise.methods.temperature.aligned import SCOPES, STATISTICS, Alignment, Calibrated
from lengthwise.models.anatomy import Anatomy, anatomy_of
from lengthwise.models.extend import Method, extend
from lengthwise.models.fingerprint import fingerprint_of, versions
from lengthwise.models.layer import active_slots
from lengthwise.models.suitability import refuse_past_the_table
from lengthwise.tasks import TASKS

SEARCHES = ("solve", "grid")
Batch = dict[str, Tensor]


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
    _check_way(statistic, scope, search)
    lengths = sorted(set(parse_lengths(length)))
    anatomy = anatomy_of(model, train_length)
    _check_lengths(lengths, anatomy.train_length, sequences)
    fingerprint, outer = fingerprint_of(anatomy), active_slots(anatomy)
    source, text = _source(text, files, task)
    batches = {n: _batches(tokenizer, text, task, n, anatomy.train_length, sequences, seed) for n in lengths}
    # Before shorter lengths are read
    refuse_past_the_table(anatomy, max(long["input_ids"].shape[1] for _, long in batches.values()))

    forwards = {"grid": len(GRID), "solve": 3}[search] if scope == "model" else 1
    total = len(lengths) * (forwards + 1) * len(anatomy.layers)
    results: list[_Result] = []
    with extend(model, method, train_length=train_length), progress("calibrating", total, show_progress) as tick:
        # All slots together, whoever filled them
        if (slots := active_slots(anatomy)) is not None:
            slots.refuse_adaptive()
        for n, (short, long) in batches.items():
            shorter = _shorter([result.entry for result in results])
            run = _Run(model, anatomy, statistic, n, short, long, shorter, tick)
            results.append(run.search(search) if scope == "model" else run.in_one_pass(scope))
    for line in (line for result in results for line in result.missed):
        warnings.warn(line, stacklevel=2)
    told = {
        "text": source,
        "sequences": sequences,
        "seed": seed,
        "search": search if scope == "model" else "one pass",
        "method": method if isinstance(method, str) else repr(method),
    }
    if outer is not None:
        told["extended_with"] = outer.names
    return _alignment(anatomy, fingerprint, statistic, scope, results, told)


@dataclass(frozen=True)
class _Result:
    entry: Calibrated
    path: list[dict[str, Any]]
    missed: list[str]  # a line each: targets that were not reached, and what to do

    @property
    def searched(self) -> dict[str, Any]:
        told = {"length": self.entry.length, "path": self.path}
        return {**told, "missed": self.missed} if self.missed else told


@dataclass(frozen=True)
class _Run:
    """One length of one model under calibration."""

    model: nn.Module
    anatomy: Anatomy
    statistic: str
    length: int
    short: Batch
    long: Batch
    shorter: tuple[tuple[int, Tensor], ...]
    tick: ProgressCallback

    @property
    def ladder(self) -> Ladder:
        return Ladder(self.anatomy.train_length, self.length, self.shorter)

    @property
    def start(self) -> float:
        """The log law, as a first guess."""
        return math.log(self.length) / math.log(self.anatomy.train_length)

    def observed(self, observer: Means, batch: Batch) -> AttentionStatistics:
        with extend(self.model, "none", train_length=self.anatomy.train_length, observer=observer):
            run_stack(self.anatomy, batch)
        result = observer.result()
        refuse_nan(self.anatomy, result.of(self.statistic))
        return result

    def targets(self) -> Tensor:  # [layers, heads]
        """The statistic at the training length, temperature 1."""
        self.tick(0, f"training length {self.anatomy.train_length}: measuring")
        means = Means(len(self.anatomy.layers), least_share=AtSharpness.LEAST_SHARE, tick=self.tick)
        return self.observed(means, self.short).of(self.statistic)

    def search(self, name: str) -> _Result:
        target = float(self.targets().mean())
        forwards = 0

        def at(g: float, responsive: bool) -> Point:
            nonlocal forwards
            forwards += 1
            self.tick(0, f"length {self.length}: forward {forwards} at tau {1 / g:.4f}, target {target:.4g}")
            sharpness = torch.tensor([[g]]).double()
            run = AtSharpness(len(self.anatomy.layers), self.ladder, self.statistic, sharpness, responsive, self.tick)
            reached = float(self.observed(run, self.long).of(self.statistic).mean())
            self._refuse_idle(run)
            return Point(g, reached, run.curve if responsive else None)

        search = grid_search(at, target) if name == "grid" else solve(at, self.start, target, self.statistic)
        best = search.best
        tau = round(1 / best.g, 2) if name == "grid" else 1 / best.g
        return _Result(Calibrated(self.length, tau, best.statistic, forwards, target), _path(search), self._off(search))

    def in_one_pass(self, scope: str) -> _Result:
        targets = self.targets()
        if scope == "layer":
            targets = targets.mean(1, keepdim=True)
        self.tick(0, f"length {self.length}: one forward, every {scope} solved on the way")
        solver = AlignInPass(len(self.anatomy.layers), self.ladder, self.statistic, targets, self.start, self.tick)
        reached = self.observed(solver, self.long).of(self.statistic)
        self._refuse_idle(solver)
        missed = self._clamped(solver.clamped, scope) if solver.clamped else []
        if scope == "layer":
            tau, value, target = ((1 / solver.g)[:, 0], reached.mean(1), targets[:, 0])
        else:
            tau, value, target = 1 / solver.g, reached, targets
        missed += self._off_each(value, target, solver, scope)
        return _Result(Calibrated(self.length, tau.tolist(), value.tolist(), 1, target.tolist()), [], missed)

    def _off(self, search: Search) -> list[str]:
        if not search.missed:
            return []
        best, wider = search.best, f"--search solve, which looks from tau {1 / FLATTEST:g} to {1 / SHARPEST:g}"
        finer = "try --scope layer, or another text (--text FILE)"
        advice = f"the grid ends there, so use {wider}" if search.at_end else "use --search solve" if search.grid else finer
        return [
            f"length {self.length}: the mean {self.statistic} is {best.statistic:.4g} at tau {1 / best.g:.4g}, "
            f"{100 * search.off(best):.0f} % off its training value {search.target:.4g}; {advice}"
        ]

    def _refuse_idle(self, run: AtSharpness) -> None:
        if len(run.idle) == len(self.anatomy.layers):
            raise BadInput(
                f"no row sees more keys than the training length of {self.anatomy.train_length} at length {self.length}, as "
                "under a window: a temperature has nothing to do here"
            )

    def _off_each(self, value: Tensor, target: Tensor, solver: AlignInPass, scope: str) -> list[str]:
        """In one line, whatever their number; those that no temperature serves have been told of, or have none."""
        off = ((value - target).abs() / target.abs()).reshape(len(value), -1)  # [layers, 1 or heads]
        off[sorted(solver.idle)] = 0
        for at, head in solver.clamped:
            off[at, head] = 0
        missed = int((off > TOLERANCE).sum())
        if not missed:
            return []
        at, head = divmod(int(off.argmax()), off.shape[1])
        worst = f"layer {at}" if scope == "layer" else f"layer {at} head {head}"
        index = (at,) if scope == "layer" else (at, head)
        return [
            f"length {self.length}: {missed} of {off.numel()} {scope}s are more than {100 * TOLERANCE:g} % off their training "
            f"{self.statistic}, most of all {worst}: {float(value[index]):.4g} instead of {float(target[index]):.4g}; "
            "try --scope model, or another text (--text FILE)"
        ]

    def _clamped(self, clamped: list[tuple[int, int]], scope: str) -> list[str]:
        where = ", ".join(f"layer {at}" if scope == "layer" else f"layer {at} head {head}" for at, head in clamped[:4])
        more = f" and {len(clamped) - 4} more" if len(clamped) > 4 else ""
        if scope == "layer":
            raise BadInput(
                f"no temperature brings {where}{more} to the training value at length {self.length}; use scope model"
            )
        reach = f"no temperature brings {where}{more} to its training value at length {self.length}"
        return [f"{reach}; the nearest allowed one is kept"]


def _alignment(
    anatomy: Anatomy,
    fingerprint: dict[str, Any],
    statistic: str,
    scope: str,
    results: Sequence[_Result],
    told: dict[str, Any],
) -> Alignment:
    """The document, with how it was obtained."""
    dtype = str(next(anatomy.stack.parameters()).dtype).removeprefix("torch.")
    return Alignment(
        statistic=statistic,
        scope=scope,
        train_length=anatomy.train_length,
        target=results[-1].entry.target or 0.0,
        temperatures=tuple(result.entry for result in results),
        model=fingerprint,
        provenance={**versions(), "dtype": dtype, **told, "searched": [result.searched for result in results]},
    )


def _path(search: Search) -> list[dict[str, Any]]:
    return [{"tau": 1 / point.g, "statistic": point.statistic} for point in search.path]


def _shorter(found: list[Calibrated]) -> tuple[tuple[int, Tensor], ...]:
    """What shorter lengths were given, as sharpness [layers or 1, heads or 1]."""
    rows = []
    for entry in found:
        tau = torch.tensor(entry.tau, dtype=torch.float64)
        rows.append((entry.length, (1 / tau).reshape(-1, tau.shape[1] if tau.dim() == 2 else 1)))
    return tuple(rows)


def _source(text: str | None, files: Sequence[str | Path], task: str | None) -> tuple[str, str]:
    """What the sequences are cut from, in words and in full."""
    if sum((text is not None, bool(files), task is not None)) > 1:
        raise BadInput("give a text, text files or a task, not several of them")
    if task is not None:
        _one_of("task", task, tuple(TASKS))
        return f"task {task}", ""
    return text_or_prose(text, files)


def _batches(
    tokenizer: Any, text: str, task: str | None, length: int, train_length: int, sequences: int, seed: int
) -> tuple[Batch, Batch]:
    """(short, long): cut from the same text, or samples of the same task."""
    if task is None:
        long = long_sequences(tokenizer, text, length, sequences, seed)
        return {"input_ids": short_sequences(tokenizer, long, train_length)}, {"input_ids": long}
    make = TASKS[task].samples
    prompts = make(tokenizer, train_length, 8 * sequences, seed), make(tokenizer, length, sequences, seed)
    short, long_ = (_padded(tokenizer, [sample.prompt for sample in samples]) for samples in prompts)
    return short, long_


def _padded(tokenizer: Any, prompts: list[str]) -> Batch:
    rows = [tokenizer(prompt, verbose=False).input_ids for prompt in prompts]
    ids, mask = pad_rows(rows, tokenizer.pad_token_id or 0, left=False)
    return {"input_ids": ids, "attention_mask": mask}


def _check_way(statistic: str, scope: str, search: str) -> None:
    _one_of("statistic", statistic, STATISTICS)
    _one_of("scope", scope, SCOPES)
    _one_of("search", search, SEARCHES)
    if search == "grid" and scope != "model":
        raise BadInput(f"--search grid is Algorithm 1, which has scope model; scope {scope} needs --search solve")


def _check_lengths(lengths: list[int], train_length: int, sequences: int) -> None:
    require(bool(lengths), "give at least one length to calibrate for")
    if lengths[0] <= train_length:
        raise BadInput(
            f"length {lengths[0]} is not above the training length {train_length}: there the model needs no temperature; "
            "give a larger --length, or the right --train-length"
        )
    require(sequences >= 1, f"sequences must be at least 1, not {sequences}")


def _one_of(what: str, value: str, allowed: Sequence[str]) -> None:
    hint = did_you_mean(str(value), allowed)
    require(value in allowed, f"{what} must be one of {', '.join(allowed)}, not {value!r}{'; ' * bool(hint)}{hint}")
