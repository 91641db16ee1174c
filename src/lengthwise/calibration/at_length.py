"""Calibrate one length: measure the target at the training length, search or solve, say in words what was missed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.calibration.align import AlignInPass, AtSharpness, SharpnessByLength
from lengthwise.calibration.measure import AttentionStatistics, RowMeans, refuse_nan, run_stack
from lengthwise.calibration.search import FLATTEST, SHARPEST, TOLERANCE, Search, SearchStep, grid_search, solve
from lengthwise.common.progress import ProgressCallback
from lengthwise.errors import require
from lengthwise.methods.temperature.aligned import Calibrated
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.extend import extend

Batch = dict[str, Tensor]  # input_ids, and attention_mask where some are padded


@dataclass(frozen=True)
class LengthResult:
    """The temperature of one length, and how it was found."""

    entry: Calibrated
    path: list[dict[str, Any]]  # tau and statistic of each forward of a search
    missed: list[str]  # a line each: targets that were not reached, and what to do
    expects: dict[str, Any] = field(default_factory=dict)  # what cases that were not fitted say, plain and fitted

    @property
    def provenance(self) -> dict[str, Any]:
        entries = {"path": self.path, "missed": self.missed, "expects": self.expects}
        return {"length": self.entry.length, **{key: value for key, value in entries.items() if value or key == "path"}}


@dataclass(frozen=True)
class LengthCalibration:
    """The calibration of one model at one length, on sequences that are given."""

    model: nn.Module
    anatomy: Anatomy
    statistic: str
    length: int
    short: Batch
    long: Batch
    shorter: tuple[tuple[int, Tensor], ...]  # (length, g [layers or 1, heads or 1]) of lengths that are calibrated already
    tick: ProgressCallback

    @property
    def sharpness(self) -> SharpnessByLength:
        return SharpnessByLength(self.anatomy.train_length, self.length, self.shorter)

    @property
    def start(self) -> float:
        """A first guess of g: the log law."""
        return math.log(self.length) / math.log(self.anatomy.train_length)

    def run(self, observer: RowMeans, batch: Batch) -> AttentionStatistics:
        """Run one forward over the batch, and return what the observer measured."""
        with extend(self.model, "none", train_length=self.anatomy.train_length, observer=observer):
            run_stack(self.anatomy, batch)
        result = observer.result()
        refuse_nan(self.anatomy, result.of(self.statistic))
        return result

    def targets(self) -> Tensor:  # [layers, heads]
        """The statistic at the training length, temperature 1."""
        self.tick(0, f"training length {self.anatomy.train_length:,}: measuring")
        means = RowMeans(len(self.anatomy.layers), least_share=AtSharpness.LEAST_SHARE, tick=self.tick)
        return self.run(means, self.short).of(self.statistic)

    def search(self, name: str) -> LengthResult:
        """One temperature for the whole model, by `grid` or `solve`."""
        target = float(self.targets().mean())
        forwards = 0

        def at(g: float, responsive: bool) -> SearchStep:
            nonlocal forwards
            forwards += 1
            self.tick(0, f"length {self.length:,}: forward {forwards} at tau {1 / g:.4f}, target {target:.4g}")
            everywhere = torch.tensor([[g]]).double()
            forward = AtSharpness(len(self.anatomy.layers), self.sharpness, self.statistic, everywhere, responsive, self.tick)
            reached = float(self.run(forward, self.long).of(self.statistic).mean())
            self._refuse_idle(forward)
            return SearchStep(g, reached, forward.curve if responsive else None)

        search = grid_search(at, target) if name == "grid" else solve(at, self.start, target, self.statistic)
        best = search.best
        tau = round(1 / best.g, 2) if name == "grid" else 1 / best.g
        entry = Calibrated(self.length, tau, best.statistic, forwards, target)
        path = [{"tau": 1 / step.g, "statistic": step.statistic} for step in search.path]
        return LengthResult(entry, path, self._missed_search(search))

    def in_one_pass(self, scope: str) -> LengthResult:
        """A temperature for every `layer` or `head`, solved as one forward reaches it."""
        targets = self.targets()
        if scope == "layer":
            targets = targets.mean(1, keepdim=True)
        self.tick(0, f"length {self.length:,}: one forward, every {scope} solved on the way")
        solver = AlignInPass(len(self.anatomy.layers), self.sharpness, self.statistic, targets, self.start, self.tick)
        reached = self.run(solver, self.long).of(self.statistic)
        self._refuse_idle(solver)
        missed = self._unreachable(solver.clamped, scope) if solver.clamped else []
        if scope == "layer":
            tau, value, target = ((1 / solver.g)[:, 0], reached.mean(1), targets[:, 0])
        else:
            tau, value, target = 1 / solver.g, reached, targets
        missed += self._missed_each(value, target, solver, scope)
        return LengthResult(Calibrated(self.length, tau.tolist(), value.tolist(), 1, target.tolist()), [], missed)

    def _missed_search(self, search: Search) -> list[str]:
        if not search.missed:
            return []
        best, wider = search.best, f"--search solve, which looks from tau {1 / FLATTEST:g} to {1 / SHARPEST:g}"
        finer = "try --scope layer, or another text (--text FILE)"
        advice = f"the grid ends there, so use {wider}" if search.at_end else "use --search solve" if search.grid else finer
        return [
            f"length {self.length}: the mean {self.statistic} is {best.statistic:.4g} at tau {1 / best.g:.4g}, "
            f"{100 * search.distance(best):.0f} % off its training value {search.target:.4g}; {advice}"
        ]

    def _refuse_idle(self, forward: AtSharpness) -> None:
        seen = f"no row sees more keys than the training length of {self.anatomy.train_length} at length {self.length}"
        useful = len(forward.idle) < len(self.anatomy.layers)
        require(useful, f"{seen}, as under a window: a temperature has nothing to do here")

    def _missed_each(self, value: Tensor, target: Tensor, solver: AlignInPass, scope: str) -> list[str]:
        """One line on all that are off their targets, but for those that no temperature brings there, or that need none."""
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

    def _unreachable(self, clamped: list[tuple[int, int]], scope: str) -> list[str]:
        where = ", ".join(f"layer {at}" if scope == "layer" else f"layer {at} head {head}" for at, head in clamped[:4])
        more = f" and {len(clamped) - 4} more" if len(clamped) > 4 else ""
        problem = f"no temperature brings {where}{more} to its training value at length {self.length}"
        require(scope == "head", f"{problem}; use scope model")
        return [f"{problem}; the nearest allowed one is kept"]


def sharpness_of(entries: Sequence[Calibrated]) -> tuple[tuple[int, Tensor], ...]:
    """(length, g [layers or 1, heads or 1]) of lengths that are calibrated."""
    rows = []
    for entry in entries:
        tau = torch.tensor(entry.tau, dtype=torch.float64)
        rows.append((entry.length, (1 / tau).reshape(-1, tau.shape[1] if tau.dim() == 2 else 1)))
    return tuple(rows)
