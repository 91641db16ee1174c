"""The search for one number: which sharpness g = 1/tau brings a model's mean statistic back to its target?

`grid_search` is Chi et al.'s Algorithm 1. `solve` gets there in three forwards, because a forward can also tell how every layer
would respond to other temperatures on the inputs it has: a curve that says where to go next.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from scipy.optimize import brentq
from torch import Tensor

from lengthwise.errors import BadInput

# tau from 2 down to 0.1
ENDS = SHARPEST, FLATTEST = 10.0, 0.5
GRID = tuple(round(1 - 0.05 * step, 2) for step in range(11))
# A third forward further off than this is worth a fourth; one nearer than the other needs no successor
TOLERANCE, GOOD_ENOUGH = 0.02, 1e-3
MOST_FORWARDS = 4
# Between two steps of the grid the nearer one is within this of the target, unless the model jumps
COARSE = 0.2
STEP = 0.01  # of ln g, for a slope
NEAR = 1e-6
# Sharper layers hand sharper inputs to the next ones: a model moves about this much more than its layers' own responses say,
# 1.1 to 2 times on the models at hand
GAIN = 1.25


def to_search_scale(values: Tensor, statistic: str) -> Tensor:
    """The statistic on a scale on which it is nearly straight in ln g: ln P_max, or the entropy itself."""
    return values.log() if statistic == "pmax" else values


def from_search_scale(values: Tensor, statistic: str) -> Tensor:
    """The inverse of `to_search_scale`."""
    return values.exp() if statistic == "pmax" else values


Curve = Callable[[float], float]
Measured = tuple[float, float, Curve | None]  # ln g, the statistic on the search scale, the layers' responses


@dataclass(frozen=True)
class SearchStep:
    """One forward of a search: the sharpness that was tried, and the statistic it gave."""

    g: float
    statistic: float
    curve: Curve | None = None  # over ln g, on the search scale: what the layers' own responses tell


@dataclass
class Search:
    """The path of a search: each forward's sharpness and what it measured."""

    target: float
    path: list[SearchStep] = field(default_factory=list)
    grid: bool = False  # the steps were not chosen

    def distance(self, point: SearchStep) -> float:
        """Relative distance to the target."""
        return abs(point.statistic - self.target) / abs(self.target)

    @property
    def best(self) -> SearchStep:
        """The nearest to the target; of equals the first."""
        return min(self.path, key=self.distance)

    @property
    def at_end(self) -> bool:
        """The best is an end of the grid: what lies beyond was not tried."""
        return self.grid and self.best in (self.path[0], self.path[-1])

    @property
    def missed(self) -> bool:
        return self.distance(self.best) > (COARSE if self.grid and not self.at_end else TOLERANCE)


def grid_search(forward: Callable[[float, bool], SearchStep], target: float) -> Search:
    """Algorithm 1: every temperature of the grid has its own forward."""
    return Search(target, [forward(1 / tau, False) for tau in GRID], grid=True)


def solve(forward: Callable[[float, bool], SearchStep], start: float, target: float, statistic: str) -> Search:
    """Search from g = `start`: three forwards, two of them with the layers' responses, and a fourth if the third is 2 % off.

    Two more where an end of the range had to be tried, which is far from everything.
    """
    search = Search(target)
    g = start
    while True:
        search.path.append(forward(g, len(search.path) < 2))
        off, left = search.distance(search.best), MOST_FORWARDS + 2 * _has_tried(search.path, ENDS) - len(search.path)
        if off < GOOD_ENOUGH or left <= 0 or (left == 1 and off <= TOLERANCE):
            return search
        g = _next(search, statistic)


def _has_tried(path: list[SearchStep], sharpness: Sequence[float]) -> bool:
    return any(math.isclose(point.g, g, rel_tol=NEAR) for point in path for g in sharpness)


def _next(search: Search, statistic: str) -> float:
    """The next g: where the measured points, joined by the layers' responses, meet the target."""

    def scale(value: float) -> float:
        return float(to_search_scale(torch.tensor(value, dtype=torch.float64), statistic))

    target = scale(search.target)
    points = sorted(((math.log(p.g), scale(p.statistic), p.curve) for p in search.path), key=lambda p: p[0])
    low, high = math.log(FLATTEST), math.log(SHARPEST)
    # P_max grows with g, the entropy falls
    rising = 1 if statistic == "pmax" else -1
    flatter = [p for p in points if (p[1] - target) * rising < 0]
    sharper = [p for p in points if (p[1] - target) * rising >= 0]
    if flatter and sharper:
        joined = _joined([flatter[-1], sharper[0]])
        return math.exp(brentq(lambda x: joined(x) - target, flatter[-1][0], sharper[0][0]))
    nearest, end = (points[-2:], high) if flatter else (points[:2][::-1], low)
    x = _crossing(_continuations(nearest), target, nearest[-1][0], end)
    if x is None and not _has_tried(search.path, [math.exp(end)]):
        # Before it is refused the end is tried: responses far from where they were measured may be wrong
        return math.exp(end)
    if x is None:
        problem = f"no temperature between {1 / SHARPEST:g} and {1 / FLATTEST:g} brings the mean {statistic}"
        raise BadInput(f"{problem} to its training value {search.target:.4g}")
    return math.exp(x)


def _continuations(used: list[Measured]) -> list[Curve]:
    """Guesses of the curve beyond the last point: along the layers' responses, then along two slopes, where those turn away."""
    joined = _joined(used)
    (x0, y0, _), (x1, y1, _) = used[0], used[-1]
    tangent = (joined(x1 + STEP) - joined(x1 - STEP)) / (2 * STEP)
    secant = (y1 - y0) / (x1 - x0) if x1 != x0 else tangent
    return [joined, lambda x: y1 + tangent * (x - x1), lambda x: y1 + secant * (x - x1)]


def _crossing(curves: list[Curve], target: float, start: float, end: float) -> float | None:
    """Where the first of the curves that meets the target between `start` and `end` does so."""
    stops = [start + (end - start) * step / 64 for step in range(65)]
    for curve in curves:
        for before, after in itertools.pairwise(stops):
            if (curve(before) - target) * (curve(after) - target) <= 0:
                return float(brentq(lambda x, curve=curve: curve(x) - target, before, after))
    return None


def _joined(used: list[Measured]) -> Curve:
    """A curve through one or two points (x, y, responses); of two the second is the nearer to the target outside of both.

    Two measured points tell how much more the model moves than its layers alone; between them each end's responses count the
    more the nearer it is. Without any responses it is a straight line.
    """
    curves = [curve for _, _, curve in used if curve is not None] or [lambda x: x * (used[-1][1] - used[0][1])]
    curve_of = [curve or curves[0] for _, _, curve in used]
    if len(used) == 1:
        (x0, y0, _), curve = used[0], curve_of[0]
        return lambda x: y0 + GAIN * (curve(x) - curve(x0))
    (x0, y0, _), (x1, y1, _) = used
    moved = sum(curve(x1) - curve(x0) for curve in curve_of) / 2
    # A model that moved against its layers' responses tells no gain
    gain = (y1 - y0) / moved if (y1 - y0) * moved > 0 else GAIN

    def joined(x: float) -> float:
        share = min(1.0, max(0.0, (x - x0) / (x1 - x0)))
        from0, from1 = y0 + gain * (curve_of[0](x) - curve_of[0](x0)), y1 + gain * (curve_of[1](x) - curve_of[1](x1))
        return (1 - share) * from0 + share * from1

    return joined
