"""The searches behind calibration: which sharpness g = 1/tau brings a statistic back to its target?

A forward can tell more than its own statistic: a layer's logits, made a little sharper or flatter on the spot, show how the
layer would respond to other temperatures. With that, one pass solves every layer on the very inputs it will have, and a search
for a single temperature knows after its first forward where to go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from scipy.optimize import brentq
from torch import Tensor

from lengthwise.attention import Equation, scan
from lengthwise.errors import BadInput
from lengthwise.measure import Means, mean_rows, row_weights
from lengthwise.methods.temperature.aligned import interpolate
from lengthwise.progress import Tick, silent

# tau from 2 down to 0.1
SHARPEST, FLATTEST = 10.0, 0.5
GRID = tuple(round(1 - 0.05 * step, 2) for step in range(11))
# A third forward further off than this is worth a fourth; one nearer than the other needs no successor
TOLERANCE, GOOD_ENOUGH = 0.02, 1e-3
# Sharper layers hand sharper inputs to the next ones: a model moves about this much more than its layers' own responses say,
# 1.1 to 2 times on the models at hand
GAIN = 1.5


@dataclass(frozen=True)
class Ladder:
    """g over n while one length is searched: through what shorter lengths were given, to a candidate at this one."""

    train_length: int
    length: int
    shorter: tuple[tuple[int, Tensor], ...] = ()  # (length, g [layers or 1, heads or 1])

    def rows(self, n: Tensor, candidates: Tensor, layer: int) -> Tensor:  # [candidates, batch, heads or 1, rows or 1]
        """`candidates` is [candidates, heads or 1]; n is [batch, 1, rows or 1]."""
        candidates = candidates.to(n.device).double()
        fixed = [g[layer % len(g)].to(candidates).expand_as(candidates) for _, g in self.shorter]
        values = torch.stack([*fixed, candidates])  # [lengths, candidates, heads or 1]
        g = interpolate(n[:, 0].double(), self.train_length, [*(length for length, _ in self.shorter), self.length], values)
        return g.permute(2, 0, 3, 1).float()


class AtSharpness(Means):
    """One forward at given sharpness, g [layers or 1, heads or 1]; `responsive`, it also measures how each layer responds."""

    # Rows that see less than half of what the widest row sees are left out; this concerns causal models only
    LEAST_SHARE = 0.5
    WIDTH = 0.15

    def __init__(
        self, layers: int, ladder: Ladder, statistic: str, g: Tensor, responsive: bool = False, tick: Tick = silent
    ) -> None:
        super().__init__(layers, self.LEAST_SHARE, tick)
        self.ladder, self.statistic, self.g, self.responsive = ladder, statistic, g, responsive
        self.responses: list[Parabola] = []  # a layer's statistic over ln g, on the inputs it had in this forward

    def before(self, layer: int, equation: Equation) -> Equation:
        g = self.g[layer % len(self.g)]
        if self.responsive:
            self.responses.append(self.response(layer, equation, g))
        own = self.ladder.rows(equation.visible.n, g[None], layer)[0]
        base = equation.inverse_temperature
        return replace(equation, inverse_temperature=own if base is None else own * base)

    def response(self, layer: int, equation: Equation, g: Tensor) -> Parabola:
        """The layer's statistic a little flatter than g, at g, and a little sharper; a head each where g has heads."""
        steps = torch.tensor([-self.WIDTH, 0.0, self.WIDTH], dtype=torch.float64).exp()
        candidates = self.ladder.rows(equation.visible.n, steps[:, None] * g, layer)
        base = equation.inverse_temperature
        rows = scan(equation, candidates if base is None else candidates * base)
        per_row = rows.p_max if self.statistic == "pmax" else rows.entropy
        means = mean_rows(per_row, row_weights(equation.visible, self.least_share)).mean(1).cpu().double()
        if len(g) == 1:
            means = means.mean(1, keepdim=True)
        return Parabola(g.log(), self.WIDTH, upright(means, self.statistic))

    def curve(self, x: float) -> float:
        """The statistic of the whole model at ln g = x, on the scale of `upright`, as far as the layers' own responses tell."""
        values = torch.cat([downright(response(x), self.statistic) for response in self.responses])
        return float(upright(values.mean(), self.statistic))


class AlignInPass(AtSharpness):
    """Solves every layer (or every head of it) as the forward reaches it and lets the forward go on with the solution."""

    ATTEMPTS = 8

    def __init__(self, layers: int, ladder: Ladder, statistic: str, targets: Tensor, start: float, tick: Tick = silent) -> None:
        super().__init__(layers, ladder, statistic, torch.full((layers, targets.shape[1]), start).double(), tick=tick)
        self.targets = targets.double()  # [layers, 1 or heads]
        self.clamped: list[tuple[int, int]] = []  # (layer, head) whose target no temperature reaches

    def before(self, layer: int, equation: Equation) -> Equation:
        g = self.g[max(0, layer - 1)].clone()  # the layer before is the best first guess
        target = upright(self.targets[layer], self.statistic)
        for _ in range(self.ATTEMPTS):
            # No further than the parabola can be trusted
            move = self.response(layer, equation, g).root(target).clamp(-4 * self.WIDTH, 4 * self.WIDTH)
            wanted = (g.log() + move).exp().clamp(FLATTEST, SHARPEST)
            moved, g = (wanted / g).log().abs(), wanted
            if bool((moved <= 1.2 * self.WIDTH).all()):
                break
        at_end = (g >= SHARPEST) | (g <= FLATTEST)
        self.clamped += [(layer, head) for head in at_end.nonzero()[:, 0].tolist()]
        self.g[layer] = g
        return super().before(layer, equation)


@dataclass(frozen=True)
class Parabola:
    """Through three points y [3, ...] at centre - width, centre, centre + width."""

    centre: Tensor
    width: float
    y: Tensor

    @property
    def slope(self) -> Tensor:
        return (self.y[2] - self.y[0]) / (2 * self.width)

    @property
    def bend(self) -> Tensor:
        return (self.y[2] - 2 * self.y[1] + self.y[0]) / (2 * self.width**2)

    def __call__(self, x: float) -> Tensor:
        """Straight beyond four widths, where the bend is no longer a measurement."""
        far = x - self.centre
        near = far.clamp(-4 * self.width, 4 * self.width)
        curved = self.y[1] + self.slope * near + self.bend * near**2
        return curved + (self.slope + 2 * self.bend * near) * (far - near)

    def root(self, target: Tensor) -> Tensor:
        """How far from the centre the parabola takes the value `target`; of two roots the nearer one."""
        gap = target - self.y[1]
        discriminant = self.slope**2 + 4 * self.bend * gap
        # The form of the quadratic formula that stays accurate, and finite, as the bend vanishes
        root = 2 * gap / (self.slope + torch.sign(self.slope) * discriminant.clamp_min(0).sqrt())
        # A parabola that never gets there still says which way: follow its slope
        root = torch.where(discriminant > 0, root, gap / self.slope)
        root = torch.where(gap == 0, torch.zeros_like(root), root)
        return root.nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)


def upright(values: Tensor, statistic: str) -> Tensor:
    """A scale on which the statistic is nearly straight in ln g: ln P_max, or the entropy itself."""
    return values.log() if statistic == "pmax" else values


def downright(values: Tensor, statistic: str) -> Tensor:
    """The way back from `upright`."""
    return values.exp() if statistic == "pmax" else values


@dataclass
class Search:
    """The path of a search over one number: each forward's sharpness and what it measured."""

    target: float
    path: list[tuple[float, float]] = field(default_factory=list)  # (g, statistic)

    def off(self, value: float) -> float:
        """Relative distance to the target."""
        return abs(value - self.target) / abs(self.target)

    @property
    def best(self) -> tuple[float, float]:
        """The nearest to the target; of equals the first."""
        return min(self.path, key=lambda step: self.off(step[1]))


def grid_search(forward: Callable[[float], float], target: float) -> Search:
    """Algorithm 1: every temperature of the grid has its own forward."""
    search = Search(target)
    for tau in GRID:
        search.path.append((1 / tau, forward(1 / tau)))
    return search


def solve(
    forward: Callable[[float], float],
    curve: Callable[[float], float],
    first: tuple[float, float],
    target: float,
    statistic: str,
) -> Search:
    """From a first forward, (g, statistic), and its curve over ln g: two more forwards, a third only when 2 % off."""
    search = Search(target, [first])
    for step in range(3):
        off = search.off(search.best[1])
        if off < GOOD_ENOUGH or (step == 2 and off <= TOLERANCE):
            break
        g = _next(curve, search, statistic)
        search.path.append((g, forward(g)))
    return search


def _next(curve: Callable[[float], float], search: Search, statistic: str) -> float:
    """Where the curve, bent to pass through what was measured, meets the target; between measured sides if there are two."""

    def scale(value: float) -> float:
        return float(upright(torch.tensor(value, dtype=torch.float64), statistic))

    target = scale(search.target)
    points = sorted((math.log(g), scale(value)) for g, value in search.path)
    low, high = math.log(FLATTEST), math.log(SHARPEST)
    # P_max grows with g, the entropy falls
    rising = 1 if statistic == "pmax" else -1
    flatter = [p for p in points if (p[1] - target) * rising < 0]
    sharper = [p for p in points if (p[1] - target) * rising >= 0]
    if flatter and sharper:
        low, high = flatter[-1][0], sharper[0][0]
        used = [flatter[-1], sharper[0]]
    else:
        used = points[-2:] if flatter else points[:2]
    # Two measured points know the slope themselves; the curve then only bends the line between them
    gain = GAIN if len(used) < 2 else 1.0
    misses = [(x, y - gain * curve(x)) for x, y in used]

    def missing(x: float) -> float:
        return gain * curve(x) + _line_through(misses, x) - target

    if low > high or missing(low) * missing(high) > 0:
        raise BadInput(
            f"no temperature between {1 / SHARPEST:g} and {1 / FLATTEST:g} brings the mean {statistic} to its training value "
            f"{search.target:.4g}"
        )
    return math.exp(brentq(missing, low, high))


def _line_through(points: list[tuple[float, float]], x: float) -> float:
    if len(points) < 2:
        return points[0][1]
    (x0, y0), (x1, y1) = points
    return y1 if x1 == x0 else y1 + (y1 - y0) * (x - x1) / (x1 - x0)
