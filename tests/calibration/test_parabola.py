"""Parabolas through three measurements: their values, beyond them too, and their roots."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import pytest
import torch

from lengthwise.calibration.align import Parabola

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
