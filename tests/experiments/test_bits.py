"""Output Alignment's synthetic tasks: the theorems against enumeration, the training, and what the page works out."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from experiments._lib.command import main
from experiments.bits import linear_attention, page, run
from experiments.bits.run import Configuration, Curve, Options, Settings, train
from lengthwise.errors import BadInput
from lengthwise.records.append_only import read_lines
from lengthwise.training.output_alignment.outrep import OutRep

SMALL = Settings(steps=12, batch=4, width=8, inner=8, layers=1, heads=2, samples=3)
TARGETS = {"length": lambda bits: len(bits), "sum": sum, "mean": lambda bits: sum(bits) / len(bits)}


def bit_error(target: str, length: int, q: tuple[float, float], kappa: tuple[float, float]) -> float:
    """The error of linear attention over all sequences of one length."""
    errors = []
    for bits in itertools.product((0, 1), repeat=length):
        g = q[bits[-1]] * sum(kappa[bit] for bit in bits) / length
        errors.append((g - TARGETS[target](bits)) ** 2)
    return math.fsum(errors) / len(errors)


def test_length_error_is_that_of_the_best_linear_attention() -> None:
    n = 5

    def loss(free: np.ndarray) -> float:
        return sum(bit_error("length", length, (free[0], free[1]), (free[2], free[3])) for length in range(1, n + 1)) / n

    chance = np.random.default_rng(0)
    best = min((minimize(loss, chance.normal(size=4)) for _ in range(4)), key=lambda solution: solution.fun)
    assert best.fun == pytest.approx(np.mean([(length - 3) ** 2 for length in range(1, 6)]), abs=1e-6)
    for length in (6, 9):
        error = bit_error("length", length, tuple(best.x[:2]), tuple(best.x[2:]))
        assert error == pytest.approx(linear_attention.length_error(length, n), rel=1e-4)
    assert linear_attention.length_error(50, 10) == 44.5**2


def test_sum_error_is_that_of_the_papers_model_and_half_of_what_it_prints() -> None:
    n = 6

    def loss(slope: np.ndarray) -> float:
        return sum(bit_error("sum", length, (1, 1), (0, float(slope[0]))) for length in range(1, n + 1))

    slope = float(minimize(loss, np.ones(1)).x[0])
    assert slope == pytest.approx(linear_attention.sum_slope(n), rel=1e-5)
    error = bit_error("sum", 9, (1, 1), (0, slope))
    assert error == pytest.approx(linear_attention.sum_error(9, n), rel=1e-5)
    printed = (9 + 1) / (2 * 9) * (n * (n + 3) / (2 * (n + 2.45)) - 9) ** 2
    assert error == pytest.approx(printed / 2, rel=1e-5)

    def whole(free: np.ndarray) -> float:
        return sum(bit_error("sum", length, (1, 1), (free[0], free[1])) for length in range(1, n + 1))

    assert minimize(whole, np.ones(2)).fun < 0.95 * loss(np.array([slope]))
    assert bit_error("mean", 8, (1, 1), (0, 1)) == linear_attention.mean_error(8) == 0
    assert bit_error("mean", 8, (1, 1), (0, 1.1)) == pytest.approx(linear_attention.mean_error(8, 0.1))


def turn(size: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


@pytest.mark.parametrize("seed", range(8))
def test_the_mended_bound_holds_for_any_linear_attention(seed: int) -> None:
    chance = np.random.default_rng(seed)
    a, b = (chance.normal(size=(3, 3)) * chance.choice([0.1, 1, 10]) for _ in range(2))
    measured = linear_attention.measure(a, b, turn(3, seed), 4, 9, n=200, seed=seed)
    assert measured.error <= measured.mended


def test_the_printed_bound_fails_where_two_large_matrices_cancel() -> None:
    sides = linear_attention.counterexample()
    # Answers vanish at the training lengths, so that misalignment is 0 and the loss that of answering nothing
    assert sides["train"] == pytest.approx(1)
    assert sides["printed"] < sides["error"] <= sides["mended"]


def test_the_theorems_are_written_where_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        main(linear_attention.Options, linear_attention.write_theorems, linear_attention.__doc__, ["--help"])
    assert "usage:" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert main(linear_attention.Options, linear_attention.write_theorems, "", ["out.json"]) == 0
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["theorem_2"] == linear_attention.theorem_2()


def test_a_model_is_the_same_whoever_is_trained_beside_it() -> None:
    configuration, other = Configuration("length", function="rsqrt"), Configuration("mean", kind="uniform ones")
    together = train([(other, 0), (configuration, 3), (other, 1)], SMALL)
    (alone,) = train([(configuration, 3)], SMALL)
    assert together[1].key == (configuration, 3)
    assert together[1].losses == pytest.approx(alone.losses, rel=1e-3)
    assert together[0].losses != pytest.approx(together[2].losses, rel=1e-3)
    assert len(alone.losses) == len(alone.answers) == 50


@pytest.mark.sweep
def test_the_experiment_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {field.name: getattr(SMALL, field.name) for field in fields(Settings)}
    options = Options(**{**small, "steps": 3}, out=tmp_path, figures=("3b",), seeds=2)
    run.run(options)
    file = tmp_path / "curves.jsonl"
    whole = read_lines(file, Curve)
    assert {(curve.train_length, curve.seed) for curve in whole} == {(n, seed) for n in (10, 20, 30) for seed in (0, 1)}
    # The last line half written, as a kill leaves it
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]) + '{"target": "len')
    monkeypatch.setattr(run, "theorem_1", list)
    monkeypatch.setattr(page, "write_pages", lambda *_: None)
    run.run(options)
    again = {curve.key: curve for curve in read_lines(file, Curve)}
    assert len(again) == len(whole)
    assert all(again[curve.key].losses == pytest.approx(curve.losses, rel=1e-3) for curve in whole)
    # Every configuration is trained once for all its figures, and only with those of its shape
    wanted = run.jobs(("1c", "1a", "1b"), 5)
    assert len(wanted) == len(set(wanted)) == 5 * (5 + 4 + 3)
    groups = run.grouped(wanted, 5)
    assert sorted(map(str, itertools.chain(*groups))) == sorted(map(str, wanted))
    assert all(len({job[0].shape for job in group}) == 1 and len(group) <= 5 for group in groups)
    with pytest.raises(BadInput, match="was begun with another steps: 3 then, 4 now"):
        run.run(replace(options, steps=4))


def test_straight_on_is_the_tangent_of_f_in_one_over_the_number_of_tokens() -> None:
    n, step = 10, 1e-4
    for name in run.FUNCTIONS:
        outrep = OutRep(name)

        def of_share(s: float, outrep: OutRep = outrep) -> float:
            return float(outrep.aligned(torch.tensor(1 / s - 2, dtype=torch.float64)))

        s = 1 / (n + 2)
        slope = (of_share(s + step * s) - of_share(s - step * s)) / (2 * step * s)
        z = torch.tensor(of_share(s) + slope * (1 / 52 - s), dtype=torch.float64)
        assert page.straight_on(name, 50) == pytest.approx(float(outrep.original(z)), rel=1e-4)
        assert page.straight_on(name, n) == pytest.approx(n)
    assert page.excursion("rsqrt", 50) == pytest.approx((10**-0.5 - 50**-0.5) / (1 - 10**-0.5))
