"""Forwards that align: at a given sharpness g = 1/tau, or solving every layer on the way.

A forward can tell more than its own statistic: a layer's logits, made a little sharper or flatter on the spot, show how the
layer would respond to other temperatures. With that, one pass solves every layer on the very inputs it will have, and a search
for a single temperature (`lengthwise.calibration.search`) knows after its first forward where to go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lengthwise.attention import Equation, scan
from lengthwise.calibration.measure import RowMeans, mean_rows, row_weights
from lengthwise.calibration.search import FLATTEST, SHARPEST, from_search_scale, to_search_scale
from lengthwise.common.progress import ProgressCallback, no_progress
from lengthwise.methods.temperature.aligned import interpolate


@dataclass(frozen=True)
class Parabola:
    """A statistic as a function of ln g: parabolas through its values y [3, ...] at centre - width, centre, centre + width."""

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
        """The value at x; on a straight line beyond four widths, where the bend is no longer a measurement."""
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


@dataclass(frozen=True)
class SharpnessByLength:
    """g as a function of a row's number of keys: 1 at the training length, then through calibrated lengths to a candidate."""

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


class AtSharpness(RowMeans):
    """One forward at given sharpness, g [layers or 1, heads or 1]; `responsive`, it also measures how each layer responds."""

    # Rows that see less than half of what the widest row sees are left out; this concerns causal models only
    LEAST_SHARE = 0.5
    WIDTH = 0.15
    # Where a response only points the way, this many rows in strips over the sequence tell it
    ROWS, STRIP = 512, 32

    def __init__(
        self,
        layers: int,
        sharpness: SharpnessByLength,
        statistic: str,
        g: Tensor,
        responsive: bool = False,
        tick: ProgressCallback = no_progress,
    ) -> None:
        super().__init__(layers, self.LEAST_SHARE, tick)
        self.sharpness, self.statistic, self.g, self.responsive = sharpness, statistic, g, responsive
        self.idle: set[int] = set()  # layers none of whose rows sees more than the training length, as under a window
        self.responses: list[Parabola] = []  # a layer's statistic over ln g, on the inputs it had in this forward

    def before(self, layer: int, equation: Equation) -> Equation:
        g = self.g[layer % len(self.g)]
        if self.has_no_effect(equation):
            self.idle.add(layer)
        if self.responsive:
            self.responses.append(self.response(layer, equation, g, self.strips(equation)))
        sought = self.sharpness.rows(equation.n, g[None], layer)[0]
        base = equation.inverse_temperature
        return replace(equation, inverse_temperature=sought if base is None else sought * base)

    def has_no_effect(self, equation: Equation) -> bool:
        """Whether g is 1 in every row of the layer, whatever is sought."""
        return not bool((equation.n > self.sharpness.train_length).any())

    def response(self, layer: int, equation: Equation, g: Tensor, rows: Sequence[slice] = (slice(None),)) -> Parabola:
        """The layer's statistic a little flatter than g, at g, and a little sharper; for each head where g has heads."""
        steps = torch.tensor([-self.WIDTH, 0.0, self.WIDTH], dtype=torch.float64).exp()
        candidates = self.sharpness.rows(equation.n, steps[:, None] * g, layer)
        base = equation.inverse_temperature
        candidates = candidates if base is None else candidates * base
        candidates = candidates.expand(*candidates.shape[:3], equation.visible.queries)
        weights = row_weights(equation.count, self.least_share)
        scans = [scan(equation.rows(*part.indices(equation.visible.queries)[:2]), candidates[..., part]) for part in rows]
        per_row = torch.cat([scanned.p_max if self.statistic == "pmax" else scanned.entropy for scanned in scans], -1)
        means = mean_rows(per_row, torch.cat([weights[..., part] for part in rows], -1)).mean(1).cpu().double()
        if len(g) == 1:
            means = means.mean(1, keepdim=True)
        return Parabola(g.log(), self.WIDTH, to_search_scale(means, self.statistic))

    def strips(self, equation: Equation) -> list[slice]:
        """Slices of neighbouring rows, spread evenly over those that count: a sample is enough to point the way."""
        counted = row_weights(equation.count, self.least_share).amax((0, 1)).nonzero()[:, 0]
        first, last = int(counted[0]), int(counted[-1]) + 1
        if last - first <= self.ROWS:
            return [slice(first, last)]
        many = self.ROWS // self.STRIP
        starts = [first + (last - first - self.STRIP) * at // (many - 1) for at in range(many)]
        return [slice(start, start + self.STRIP) for start in starts]

    def curve(self, x: float) -> float:
        """The statistic of the whole model at ln g = x, on the search scale, as far as the layers' own responses tell."""
        values = torch.cat([from_search_scale(response(x), self.statistic) for response in self.responses])
        return float(to_search_scale(values.mean(), self.statistic))


class AlignInPass(AtSharpness):
    """Solves every layer (or every head of it) as the forward reaches it and lets the forward go on with the solution."""

    ATTEMPTS = 8

    def __init__(
        self, layers: int, sharpness: SharpnessByLength, statistic: str, targets: Tensor, start: float, tick: ProgressCallback
    ) -> None:
        super().__init__(layers, sharpness, statistic, torch.full((layers, targets.shape[1]), start).double(), tick=tick)
        self.targets = targets.double()  # [layers, 1 or heads]
        self.guess = self.g[0].clone()  # what the layer before was given is the best one
        self.clamped: list[tuple[int, int]] = []  # (layer, head) whose target no temperature reaches

    def before(self, layer: int, equation: Equation) -> Equation:
        if self.has_no_effect(equation):
            self.g[layer] = 1.0
            return super().before(layer, equation)
        g = self.guess
        target = to_search_scale(self.targets[layer], self.statistic)
        for _ in range(self.ATTEMPTS):
            # No further than the parabola can be trusted
            move = self.response(layer, equation, g).root(target).clamp(-4 * self.WIDTH, 4 * self.WIDTH)
            wanted = (g.log() + move).exp().clamp(FLATTEST, SHARPEST)
            moved, g = (wanted / g).log().abs(), wanted
            if bool((moved <= 1.2 * self.WIDTH).all()):
                break
        at_end = (g >= SHARPEST) | (g <= FLATTEST)
        self.clamped += [(layer, head) for head in at_end.nonzero()[:, 0].tolist()]
        self.g[layer], self.guess = g, g
        return super().before(layer, equation)
