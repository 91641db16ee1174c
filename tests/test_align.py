"""The searches on functions whose answers are known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy
import pytest
import torch

from lengthwise.align import Ladder, Parabola, Search, downright, grid_search, solve, upright
from lengthwise.errors import BadInput

CENTRE, WIDTH = 0.3, 0.15


def wide(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def through(polynomial: Callable[[float], float]) -> Parabola:
    values = [polynomial(x) for x in (-WIDTH, 0.0, WIDTH)]
    return Parabola(wide(CENTRE), WIDTH, wide(*values)[:, None])


# y = level + slope x + bend x^2, x from the centre: rising and falling, either bend, straight
SHAPES = [(-2.0, 0.8, 0.5), (-2.0, 0.8, -0.5), (3.0, -1.2, 0.7), (3.0, -1.2, -0.7), (1.0, 2.0, 0.0), (1.0, -2.0, 0.0)]


@pytest.mark.parametrize(("level", "slope", "bend"), SHAPES)
def test_a_parabola_is_the_one_through_its_points(level: float, slope: float, bend: float) -> None:
    parabola = through(lambda x: level + slope * x + bend * x**2)
    assert float(parabola.slope) == pytest.approx(slope)
    assert float(parabola.bend) == pytest.approx(bend, abs=1e-12)
    for x in (-0.6, -0.15, 0.0, 0.1, 0.6):
        assert float(parabola(CENTRE + x)) == pytest.approx(level + slope * x + bend * x**2)


@pytest.mark.parametrize(("level", "slope", "bend"), SHAPES)
@pytest.mark.parametrize("side", [-1, 1])
def test_a_parabola_goes_straight_on_beyond_four_widths(level: float, slope: float, bend: float, side: int) -> None:
    parabola = through(lambda x: level + slope * x + bend * x**2)
    edge = side * 4 * WIDTH
    tangent = slope + 2 * bend * edge
    for further in (0.0, 0.2, 1.5):
        expected = level + slope * edge + bend * edge**2 + tangent * side * further
        assert float(parabola(CENTRE + edge + side * further)) == pytest.approx(expected)


@pytest.mark.parametrize(("level", "slope", "bend"), SHAPES)
@pytest.mark.parametrize("gap", [-0.2, -0.01, 0.0, 0.05, 0.2])
def test_the_root_is_the_nearer_one(level: float, slope: float, bend: float, gap: float) -> None:
    parabola = through(lambda x: level + slope * x + bend * x**2)
    roots = numpy.roots([bend, slope, -gap])
    expected = min(roots[numpy.isreal(roots)].real, key=abs)
    found = parabola.root(wide(level + gap))
    assert found.tolist() == pytest.approx([expected], abs=1e-9)


def test_a_target_the_parabola_never_reaches_is_sought_along_its_slope() -> None:
    """1 + x - x^2 has its summit 1.25 at x = 0.5."""
    parabola = through(lambda x: 1 + x - x**2)
    assert parabola.root(wide(3.0)).tolist() == pytest.approx([2.0])
    falling = through(lambda x: 1 - x + x**2)
    assert falling.root(wide(-3.0)).tolist() == pytest.approx([4.0])


@pytest.mark.parametrize(("target", "direction"), [(2.0, math.inf), (-2.0, -math.inf)])
def test_a_flat_response_has_its_root_at_infinity(target: float, direction: float) -> None:
    assert through(lambda x: 1.0).root(wide(target)).tolist() == [direction]


def test_parabolas_are_solved_side_by_side() -> None:
    xs = wide(-WIDTH, 0.0, WIDTH)[:, None]
    parabolas = Parabola(torch.zeros(2).double(), WIDTH, torch.cat([1 + xs, 2 - 4 * xs], 1))
    assert parabolas.root(wide(1.5, 1.0)).tolist() == pytest.approx([0.5, 0.25])


@pytest.mark.parametrize("statistic", ["pmax", "entropy"])
def test_upright_and_downright_undo_each_other(statistic: str) -> None:
    values = wide(0.01, 0.3, 0.9)
    torch.testing.assert_close(downright(upright(values, statistic), statistic), values)
    assert torch.equal(upright(values, "entropy"), values)
    torch.testing.assert_close(upright(values, "pmax"), wide(*(math.log(v) for v in (0.01, 0.3, 0.9))))


class Model:
    """A statistic known for every sharpness, and a count of how often it was asked for."""

    def __init__(self, statistic: str, law: Callable[[float], float]) -> None:
        self.statistic, self.law = statistic, law
        self.forwards = 0

    def __call__(self, g: float) -> float:
        self.forwards += 1
        value = self.law(math.log(g))
        return math.exp(value) if self.statistic == "pmax" else value


# On the scale of ln P_max the model is -2 + 0.8 ln g, and its target lies at ln g = 0.625
TARGET, ANSWER = math.exp(-1.5), math.exp(0.625)


def line(level: float, slope: float) -> Callable[[float], float]:
    return lambda x: level + slope * x


def solved(model: Model, curve: Callable[[float], float], target: float, statistic: str, start: float = 1.0) -> Search:
    """A search whose first forward stands at `start`."""
    return solve(model, curve, (start, model(start)), target, statistic)


@pytest.mark.parametrize("slope", [0.5, 0.8, 1.5])
def test_solve_finds_the_root_of_a_straight_model_in_three_forwards(slope: float) -> None:
    """Two measured points are enough for a straight line, whatever slope the curve had."""
    model = Model("pmax", line(-2.0, 0.8))
    search = solved(model, line(-2.0, slope), TARGET, "pmax")
    assert search.best == (pytest.approx(ANSWER, rel=1e-4), pytest.approx(TARGET, rel=1e-4))
    assert model.forwards == len(search.path) <= 3


def test_a_first_forward_on_the_target_is_the_last() -> None:
    model = Model("pmax", line(-2.0, 0.8))
    assert solved(model, line(-2.0, 0.8), TARGET, "pmax", start=ANSWER).best[0] == ANSWER
    assert model.forwards == 1


def test_a_fourth_forward_is_the_last_however_far_off() -> None:
    """A step no smooth curve can foresee."""
    model = Model("entropy", lambda x: 3.0 - 2.0 * (x > 0.4) - 0.01 * x)
    search = solved(model, line(3.0, -1.2), 2.0, "entropy")
    assert model.forwards == 4
    assert search.off(search.best[1]) > 0.02


def test_a_bracketed_target_is_sought_inside_the_bracket() -> None:
    model = Model("pmax", lambda x: -2.0 + 4 * x**3)
    search = solved(model, line(-2.0, 0.5), math.exp(-1.0), "pmax")
    steps = [g for g, _ in search.path]
    assert all(steps[0] < g < max(steps) for g in steps[2:])


@pytest.mark.parametrize(("statistic", "target"), [("pmax", 0.9), ("entropy", 0.1)])
def test_a_target_no_temperature_reaches_is_refused_after_the_first_forward(statistic: str, target: float) -> None:
    model = Model(statistic, line(-2.0, 0.01) if statistic == "pmax" else line(3.0, -0.01))
    with pytest.raises(BadInput, match="no temperature between"):
        solved(model, line(-2.0, 0.01) if statistic == "pmax" else line(3.0, -0.01), target, statistic)
    assert model.forwards == 1


def test_grid_search_asks_for_all_eleven_temperatures_and_takes_the_nearest() -> None:
    model = Model("pmax", line(-2.0, 0.8))
    search = grid_search(model, TARGET)
    taus = [1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5]
    assert [g for g, _ in search.path] == pytest.approx([1 / tau for tau in taus])
    assert model.forwards == 11
    # The answer is tau = exp(-0.625) = 0.535; in the statistic 0.55 is nearer than 0.5
    assert search.best[0] == pytest.approx(1 / 0.55)


def test_a_grid_that_does_not_reach_the_target_ends_at_its_end() -> None:
    assert grid_search(Model("pmax", line(-2.0, 0.1)), 0.9).best[0] == pytest.approx(1 / 0.5)


def test_of_equally_near_steps_the_first_wins() -> None:
    assert Search(2.0, [(1.0, 1.5), (1.1, 2.5), (1.2, 1.5)]).best == (1.0, 1.5)


def by_hand(n: float, knots: list[tuple[float, float]]) -> float:
    """Linear in ln n between knots (length, g), held at both ends."""
    if n <= knots[0][0]:
        return 1.0
    for (n0, g0), (n1, g1) in itertools.pairwise(knots):
        if n <= n1:
            return g0 + (g1 - g0) * math.log(n / n0) / math.log(n1 / n0)
    return knots[-1][1]


N = [16, 32, 33, 48, 64, 80, 128, 200]


def test_a_ladder_climbs_from_one_through_shorter_lengths_to_the_candidate() -> None:
    ladder = Ladder(32, 128, ((64, torch.tensor([[1.2]])),))
    rows = ladder.rows(torch.tensor([[N]]), torch.tensor([[1.5], [3.0]]), layer=1)
    assert rows.shape == (2, 1, 1, len(N))
    for row, candidate in zip(rows[:, 0, 0], (1.5, 3.0), strict=True):
        assert row.tolist() == pytest.approx([by_hand(n, [(32, 1.0), (64, 1.2), (128, candidate)]) for n in N])


def test_a_ladder_has_a_rung_for_every_layer_head_and_sequence() -> None:
    fixed = torch.tensor([[1.1, 1.2], [1.3, 1.4], [1.6, 1.7]])
    ladder = Ladder(32, 128, ((64, fixed),))
    n = torch.tensor([[N], [[x + 5 for x in N]]])  # [batch, 1, rows]
    candidates = torch.tensor([[2.0, 2.5], [0.7, 0.8], [4.0, 3.0]])
    for layer in range(3):
        rows = ladder.rows(n, candidates, layer)
        assert rows.shape == (3, 2, 2, len(N))
        for c in range(3):
            for b in range(2):
                for h in range(2):
                    knots = [(32.0, 1.0), (64.0, float(fixed[layer, h])), (128.0, float(candidates[c, h]))]
                    expected = [by_hand(x, knots) for x in n[b, 0].tolist()]
                    assert rows[c, b, h].tolist() == pytest.approx(expected)


def test_the_first_ladder_has_no_shorter_lengths() -> None:
    rows = Ladder(32, 128).rows(torch.tensor([[N]]), torch.tensor([[2.0]]), layer=0)
    assert rows[0, 0, 0].tolist() == pytest.approx([by_hand(n, [(32, 1.0), (128, 2.0)]) for n in N])
