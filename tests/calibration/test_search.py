"""The searches on functions whose answers are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from lengthwise.calibration.search import Search, SearchStep, from_search_scale, grid_search, solve, to_search_scale
from lengthwise.errors import BadInput


def wide(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("statistic", ["pmax", "entropy"])
def test_the_search_scale_and_back_undo_each_other(statistic: str) -> None:
    values = wide(0.01, 0.3, 0.9)
    torch.testing.assert_close(from_search_scale(to_search_scale(values, statistic), statistic), values)
    assert torch.equal(to_search_scale(values, "entropy"), values)
    torch.testing.assert_close(to_search_scale(values, "pmax"), wide(*(math.log(v) for v in (0.01, 0.3, 0.9))))


class Model:
    """A statistic known for every sharpness, the layers' responses as somebody measures them, and the forwards it took."""

    def __init__(self, statistic: str, law: Callable[[float], float], curve: Callable[[float], float] | None = None) -> None:
        self.statistic, self.law, self.curve = statistic, law, curve
        self.responsive: list[bool] = []  # one a forward

    @property
    def forwards(self) -> int:
        return len(self.responsive)

    def __call__(self, g: float, responsive: bool) -> SearchStep:
        self.responsive.append(responsive)
        value = self.law(math.log(g))
        return SearchStep(g, math.exp(value) if self.statistic == "pmax" else value, self.curve if responsive else None)


# On the scale of ln P_max the model is -2 + 0.8 ln g, and its target lies at ln g = 0.625
TARGET, ANSWER = math.exp(-1.5), math.exp(0.625)


def line(level: float, slope: float) -> Callable[[float], float]:
    return lambda x: level + slope * x


@pytest.mark.parametrize("slope", [0.5, 0.8, 1.5])
def test_solve_finds_the_root_of_a_straight_model_in_three_forwards(slope: float) -> None:
    """Two measured points are enough for a straight line, whatever slope the layers' responses had."""
    model = Model("pmax", line(-2.0, 0.8), line(-2.0, slope))
    search = solve(model, 1.0, TARGET, "pmax")
    assert search.best.g == pytest.approx(ANSWER, rel=1e-4)
    assert search.best.statistic == pytest.approx(TARGET, rel=1e-4)
    assert model.forwards == len(search.path) <= 3
    assert model.responsive == [True, True, False][: model.forwards]


def test_a_bent_model_is_found_by_the_bend_of_its_layers() -> None:
    """Twice as steep as its layers, both bent alike: the third forward is as good as on a straight line."""
    model = Model("pmax", lambda x: -2.0 + 2 * (0.8 * x - 0.3 * x**2), lambda x: 5.0 + 0.8 * x - 0.3 * x**2)
    search = solve(model, 1.0, TARGET, "pmax")
    assert model.forwards == 3
    assert search.distance(search.path[2]) < 1e-4


def test_a_curve_that_turns_before_the_target_still_says_which_way() -> None:
    model = Model("pmax", line(-2.0, 0.8), lambda x: -2.0 + 0.8 * x - 2.0 * x**2)
    search = solve(model, 1.0, TARGET, "pmax")
    assert search.path[1].g > 1.2
    assert search.distance(search.best) < 0.02


def test_a_first_forward_on_the_target_is_the_last() -> None:
    model = Model("pmax", line(-2.0, 0.8), line(-2.0, 0.8))
    assert solve(model, ANSWER, TARGET, "pmax").best.g == ANSWER
    assert model.forwards == 1


def test_a_fourth_forward_is_the_last_however_far_off() -> None:
    """A step no smooth curve can foresee."""
    model = Model("entropy", lambda x: 3.0 - 2.0 * (x > 0.4) - 0.01 * x, line(3.0, -1.2))
    search = solve(model, 1.0, 2.0, "entropy")
    assert model.forwards == 4
    assert search.distance(search.best) > 0.02
    assert search.missed


def test_a_bracketed_target_is_sought_inside_the_bracket() -> None:
    model = Model("pmax", lambda x: -2.0 + 4 * x**3, line(-2.0, 0.5))
    steps = [point.g for point in solve(model, 1.0, math.exp(-1.0), "pmax").path]
    assert all(steps[0] < g < max(steps) for g in steps[2:])


def test_a_model_that_moves_against_its_layers_is_followed_all_the_same() -> None:
    """The second forward is flatter than the first; the search goes on sharpening instead of giving up."""
    model = Model("pmax", lambda x: -2.0 + (0.8 * x if x > 0.55 else -0.05 * x), line(-2.0, 0.8))
    steps = [point.g for point in solve(model, 1.0, TARGET, "pmax").path]
    assert steps[0] < steps[1] < steps[2]


@pytest.mark.parametrize(("statistic", "target"), [("pmax", 0.9), ("entropy", 0.1)])
def test_a_target_no_temperature_reaches_is_refused_once_the_end_was_tried(statistic: str, target: float) -> None:
    law = line(-2.0, 0.01) if statistic == "pmax" else line(3.0, -0.01)
    model = Model(statistic, law, law)
    with pytest.raises(BadInput, match="no temperature between"):
        solve(model, 1.0, target, statistic)
    assert model.forwards == 2


def test_a_target_that_the_layers_do_not_foresee_is_found_all_the_same() -> None:
    """Flat where it was measured, steep near the end."""
    model = Model("entropy", lambda x: 3.0 - 0.4 * x**2, line(3.0, -0.01))
    search = solve(model, 1.0, 2.0, "entropy")
    assert model.forwards == 5
    assert search.distance(search.best) < 0.02


def test_grid_search_asks_for_all_eleven_temperatures_and_takes_the_nearest() -> None:
    model = Model("pmax", line(-2.0, 0.8))
    search = grid_search(model, TARGET)
    taus = [1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5]
    assert [point.g for point in search.path] == pytest.approx([1 / tau for tau in taus])
    assert model.responsive == [False] * 11
    # The answer is tau = exp(-0.625) = 0.535; in the statistic 0.55 is nearer than 0.5
    assert search.best.g == pytest.approx(1 / 0.55)


def test_a_grid_that_does_not_reach_the_target_ends_at_its_end() -> None:
    search = grid_search(Model("pmax", line(-2.0, 0.1)), 0.9)
    assert search.best.g == pytest.approx(1 / 0.5)
    assert (search.at_end, search.missed) == (True, True)
    # An end that is the answer is no miss
    assert not grid_search(Model("pmax", line(-2.0, 0.1)), math.exp(-2.0 + 0.1 * math.log(2))).missed


def test_a_grid_that_ends_a_little_short_has_missed() -> None:
    # At tau = 0.5 the statistic has doubled, of the 2.2 it should have
    search = grid_search(Model("pmax", line(-2.0, 1.0)), 2.2 * math.exp(-2.0))
    assert search.distance(search.best) == pytest.approx(1 / 11)
    assert (search.at_end, search.missed) == (True, True)


def test_a_grid_misses_only_what_jumps_between_its_steps() -> None:
    smooth = grid_search(Model("pmax", line(-2.0, 0.8)), TARGET)
    assert smooth.distance(smooth.best) > 0.02
    assert (smooth.at_end, smooth.missed) == (False, False)
    stiff = grid_search(Model("pmax", lambda x: -3.0 + 2.0 * (x > 0.4) + 0.1 * x), math.exp(-2.0))
    assert (stiff.at_end, stiff.missed) == (False, True)


def test_of_equally_near_steps_the_first_wins() -> None:
    assert Search(2.0, [SearchStep(1.0, 1.5), SearchStep(1.1, 2.5), SearchStep(1.2, 1.5)]).best == SearchStep(1.0, 1.5)
