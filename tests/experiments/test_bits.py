"""Output Alignment's synthetic tasks: the theorems against enumeration, the training, and the page from curves made up here."""

from __future__ import annotations

import itertools
import json
import math
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from experiments.output_alignment import bits_page, bits_training, bits_verdicts, linear_attention, synthetic
from experiments.output_alignment.bits_configurations import FIGURES, SEEDS, Configuration, Curve
from experiments.output_alignment.bits_findings import by_configuration, continuation, excursion, flatness, holds_to, loss_at
from experiments.output_alignment.bits_training import Settings, Together, train
from lengthwise.errors import BadInput
from lengthwise.records.append_only import read_lines

SMALL = Settings(steps=12, batch=4, width=8, inner=8, layers=1, heads=2, samples=3)
TARGETS = {"length": lambda bits: len(bits), "sum": sum, "mean": lambda bits: sum(bits) / len(bits)}


def bit_error(target: str, length: int, q: tuple[float, float], kappa: tuple[float, float]) -> float:
    """Of linear attention over all sequences of one length."""
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
    best = min((minimize(loss, chance.normal(size=4)) for _ in range(4)), key=lambda found: found.fun)
    assert best.fun == pytest.approx(np.mean([(length - 3) ** 2 for length in range(1, 6)]), abs=1e-6)
    for length in (6, 9):
        found = bit_error("length", length, tuple(best.x[:2]), tuple(best.x[2:]))
        assert found == pytest.approx(linear_attention.length_error(length, n), rel=1e-4)
    assert linear_attention.length_error(50, 10) == 44.5**2


def test_sum_error_is_that_of_the_papers_model_and_half_of_what_it_prints() -> None:
    n = 6

    def loss(slope: np.ndarray) -> float:
        return sum(bit_error("sum", length, (1, 1), (0, float(slope[0]))) for length in range(1, n + 1))

    slope = float(minimize(loss, np.ones(1)).x[0])
    assert slope == pytest.approx(linear_attention.sum_slope(n), rel=1e-5)
    found = bit_error("sum", 9, (1, 1), (0, slope))
    assert found == pytest.approx(linear_attention.sum_error(9, n), rel=1e-5)
    printed = (9 + 1) / (2 * 9) * (n * (n + 3) / (2 * (n + 2.45)) - 9) ** 2
    assert found == pytest.approx(printed / 2, rel=1e-5)

    def whole(free: np.ndarray) -> float:
        return sum(bit_error("sum", length, (1, 1), (free[0], free[1])) for length in range(1, n + 1))

    assert minimize(whole, np.ones(2)).fun < 0.95 * loss(np.array([slope]))


def test_mean_error_is_none_and_small_where_the_model_is_nearly_best() -> None:
    assert bit_error("mean", 8, (1, 1), (0, 1)) == linear_attention.mean_error(8) == 0
    assert bit_error("mean", 8, (1, 1), (0, 1.1)) == pytest.approx(linear_attention.mean_error(8, 0.1))


def turn(size: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


def test_answers_of_linear_attention_are_sums_over_tokens() -> None:
    chance = np.random.default_rng(3)
    a, b, tokens = chance.normal(size=(4, 4)), chance.normal(size=(4, 4)), chance.normal(size=(2, 5, 4))
    for row, found in zip(tokens, linear_attention.answers(tokens, a, b), strict=True):
        by_hand = sum((row[-1] @ a @ x) * (x @ b) for x in row) / 5
        assert found == pytest.approx(by_hand)


@pytest.mark.parametrize("seed", range(8))
def test_the_mended_bound_holds_for_any_linear_attention(seed: int) -> None:
    chance = np.random.default_rng(seed)
    a, b = (chance.normal(size=(3, 3)) * chance.choice([0.1, 1, 10]) for _ in range(2))
    found = linear_attention.measure(a, b, turn(3, seed), 4, 9, n=200, seed=seed)
    assert found.error <= found.mended


def test_the_printed_bound_fails_where_two_large_matrices_cancel() -> None:
    # a b = 0, and answers vanish at the training lengths' tokens only by luck: far tokens then decide
    a, b = 30 * np.outer([1, 0], [1, 0]), 30 * np.outer([0, 1], [1, 0])
    near, far = np.array([1.0, 0.0]), np.array([1.0, 1.0]) / math.sqrt(2)
    tokens = np.array([[far] * 40 + [near] * 4])
    wanted = near
    given = {length: linear_attention.answers(tokens[:, -length:], a, b)[0] for length in (2, 3, 4, 44)}
    error, train_loss = ((given[44] - wanted) ** 2).sum(), ((given[4] - wanted) ** 2).sum()
    assert all(np.allclose(given[length], 0) for length in (2, 3, 4))
    assert error > linear_attention.constants(a, b, 4, 44, printed=True).bound(0.0, train_loss)
    assert error <= linear_attention.constants(a, b, 4, 44).bound(0.0, train_loss)


def test_trained_linear_attention_answers_better_than_untrained() -> None:
    target = turn(4, 0)
    before = linear_attention.measure(np.eye(4), np.eye(4), target, 8, 16, n=300, seed=5)
    after = linear_attention.measure(*linear_attention.trained(target, 8, n=300), target, 8, 16, n=300, seed=5)
    assert after.train < 0.4 * before.train
    with pytest.raises(BadInput, match="2 <= train_length < test_length, not 8 and 8"):
        linear_attention.constants(target, target, 8, 8)


def test_a_model_is_the_same_whoever_is_trained_beside_it() -> None:
    one, other = Configuration("length", function="rsqrt"), Configuration("mean", kind="uniform ones")
    together = train([(other, 0), (one, 3), (other, 1)], SMALL)
    (alone,) = train([(one, 3)], SMALL)
    assert together[1].configuration == one
    assert together[1].losses == pytest.approx(alone.losses, rel=1e-3)
    assert together[0].losses != pytest.approx(together[2].losses, rel=1e-3)
    assert len(alone.losses) == len(alone.answers) == 50


def test_models_side_by_side_answer_what_each_answers_alone() -> None:
    models = [SMALL.model(Configuration("sum", "alibi"), seed) for seed in range(3)]
    tokens, ends = torch.randint(0, 5, (3, 4, 9)), torch.tensor([[3, 8, 5, 2]] * 3)
    found = Together(models)(tokens, ends)
    for model, own, row in zip(models, tokens, found, strict=True):
        torch.testing.assert_close(row, model(own, ends[0]).logits)


@pytest.mark.parametrize("positions", ["learned", "alibi", "rope", "nope"])
def test_on_a_gpu_attention_is_written_out_and_gradients_are_those_of_each_alone(
    positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 9 tokens, of which fused kernels would keep nothing under vmap; here the GPU's choice is made on a CPU."""
    left: list[tuple[bool, ...]] = []
    switches = torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.mem_efficient_sdp_enabled
    attend = torch.nn.functional.scaled_dot_product_attention

    def watched(*args: object, **kwargs: object) -> torch.Tensor:
        left.append(tuple(switch() for switch in switches))
        return attend(*args, **kwargs)

    real = bits_training.kernels
    assert isinstance(real(torch.device("cpu")), nullcontext)
    monkeypatch.setattr(bits_training, "kernels", lambda device: real(torch.device("cuda")))
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    models = [SMALL.model(Configuration("sum", positions), seed) for seed in range(3)]
    tokens, ends = torch.randint(0, 5, (3, 4, 9)), torch.tensor([[3, 8, 5, 2]] * 3)
    together = Together(models)
    found = together(tokens, ends)
    assert set(left) == {(False, False)}
    assert all(switch() for switch in switches)
    slopes = torch.autograd.grad(found.square().sum(), together.parameters)
    for at, (model, own) in enumerate(zip(models, tokens, strict=True)):
        alone = model(own, ends[0]).logits
        torch.testing.assert_close(found[at], alone)
        wanted = torch.autograd.grad(alone.square().sum(), list(model.parameters()))
        for slope, one in zip(slopes, wanted, strict=True):
            torch.testing.assert_close(slope[at], one)


def test_training_learns_the_mean() -> None:
    short = Settings(steps=120, batch=16, width=16, inner=32, layers=1, heads=2, samples=50)
    (found,) = train([(Configuration("mean", kind="uniform ones"), 0)], short)
    # A guess of a half would lose about 0.1
    assert found.losses[9] < 0.02


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(BadInput, match="one shape"):
        train([(Configuration("mean"), 0), (Configuration("mean", "rope"), 0)], SMALL)
    with pytest.raises(BadInput, match="--steps must be at least 1, not 0"):
        Settings(steps=0)
    with pytest.raises(BadInput, match="training diverged at --lr 1e\\+30"):
        train([(Configuration("mean"), 0)], replace(SMALL, lr=1e30))


def test_groups_keep_the_order_and_hold_every_job_once() -> None:
    wanted = synthetic.jobs(("1c", "1a", "1b"), 5)
    assert len(wanted) == len(set(wanted)) == 5 * (5 + 4 + 3)
    for most in (1, 5, 100):
        found = synthetic.groups(wanted, most)
        assert sorted(map(str, itertools.chain(*found))) == sorted(map(str, wanted))
        assert all(len({one.shape for one, _ in group}) == 1 and len(group) <= most for group in found)
    assert [group[0][0] for group in synthetic.groups(wanted, 5)][:5] == list(FIGURES["1c"])


ARGUMENTS = "--figure 3b --seeds 2 --steps 3 --batch 2 --width 8 --inner 8 --layers 1 --heads 2 --samples 2 --device cpu"


def test_the_experiment_goes_on_where_it_stopped_and_refuses_other_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = synthetic.options_from(["--out", str(tmp_path), *ARGUMENTS.split()])
    synthetic.run(options, "command")
    file = tmp_path / "curves.jsonl"
    whole = read_lines(file, Curve)
    assert {(one.train_length, one.seed) for one in whole} == {(n, seed) for n in (10, 20, 30) for seed in (0, 1)}
    # The last line half written, as a kill leaves it
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]) + '{"target": "len')
    synthetic.run(options, "command")
    again = {one.key: one for one in read_lines(file, Curve)}
    assert len(again) == len(whole)
    assert all(again[one.key].losses == pytest.approx(one.losses, rel=1e-3) for one in whole)
    assert {path.name for path in tmp_path.iterdir()} == {"curves.jsonl", "settings.json"}
    other = synthetic.options_from(["--out", str(tmp_path), *ARGUMENTS.replace("--steps 3", "--steps 4").split()])
    with pytest.raises(BadInput, match="steps was 3, now 4"):
        synthetic.run(other)
    capsys.readouterr()


def test_it_stops_on_time_and_says_how_far_it_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--out", str(tmp_path), "--figure", "1a", "--minutes", "0.02", "--device", "cpu"]
    synthetic.run(synthetic.options_from(arguments))
    assert "0 of 4 groups of models are trained" in capsys.readouterr().out


def test_bad_options_are_refused(tmp_path: Path) -> None:
    for words, match in (("--seeds 0", "--seeds must be at least 1"), ("--minutes 0", "--minutes must be above 0")):
        with pytest.raises(BadInput, match=match):
            synthetic.options_from(["--out", str(tmp_path), *words.split()])
    with pytest.raises(BadInput, match="nothing is trained"):
        synthetic.run(synthetic.options_from(["--out", str(tmp_path / "none"), "--page"]))


def curve(one: Configuration, seed: int, losses: list[float], answers: list[float]) -> Curve:
    return Curve.of(one, seed=seed, steps=1, train_loss=0.0, losses=losses, answers=answers, cpu_seconds=2.0)


def test_continuation_is_the_tangent_of_f_in_one_over_the_number_of_tokens() -> None:
    n, step = 10, 1e-5
    inverses = {"identity": lambda z: z, "sqrt": lambda z: z**2, "log": math.exp, "rsqrt": lambda z: z**-2}
    forwards = {"identity": lambda y: y, "sqrt": math.sqrt, "log": math.log, "rsqrt": lambda y: y**-0.5}
    for name, f in forwards.items():

        def of_share(s: float, f=f) -> float:  # type: ignore[no-untyped-def]
            return f(1 / s - 2)

        s = 1 / (n + 2)
        slope = (of_share(s + step) - of_share(s - step)) / (2 * step)
        z = of_share(s) + slope * (1 / (50 + 2) - s)
        assert continuation(Configuration("length", function=name), 50) == pytest.approx(inverses[name](z), rel=1e-5)
        assert continuation(Configuration("length", function=name), n) == pytest.approx(n)


def test_excursions_are_counted_in_training_ranges() -> None:
    by_hand = {"identity": 40 / 9, "log": math.log(5) / math.log(10), "rsqrt": (10**-0.5 - 50**-0.5) / (1 - 10**-0.5)}
    for name, expected in by_hand.items():
        assert excursion(Configuration("length", function=name), 50) == pytest.approx(expected, rel=1e-5)


def test_findings_are_medians_ranges_and_first_failures() -> None:
    one = Configuration("length")
    curves = [curve(one, seed, [0.1, 0.2, float(seed), 0.1], [1, 2, 3, 4]) for seed in (4, 0, 1, 7, 9)]
    assert loss_at(curves, 3) == loss_at(curves[::-1], 3)
    assert (loss_at(curves, 3).middle, loss_at(curves, 3).low, loss_at(curves, 3).high) == (4, 0, 9)
    assert holds_to(curves[0], 1.0) == 2
    assert holds_to(curves[1], 1.0) == 4
    assert holds_to(curve(one, 0, [0.1, math.nan, 0.1], [0, 0, 0]), 1.0) == 1
    assert flatness(curves[0], 2, 4) == pytest.approx(20)


def test_a_function_is_called_better_only_where_all_its_seeds_are() -> None:
    def seeds(name: str, *losses: float) -> list[Curve]:
        one = Configuration("length", function=name)
        return [curve(one, seed, [loss] * 50, [1.0] * 50) for seed, loss in enumerate(losses)]

    plain = seeds("identity", 10, 11, 12)
    curves = [*plain, *seeds("log", 1, 2, 9), *seeds("sqrt", 1, 3, 10.5)]
    words = bits_verdicts.order(by_configuration(curves))
    assert words is not None
    assert "from best to worst: log 2, sqrt 3, identity 11." in words
    assert "with log; with sqrt seeds overlap" in words
    assert bits_verdicts.order(by_configuration(plain)) is None


def test_the_page_says_what_the_curves_say_and_names_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chance = random.Random(0)
    grown = [10.0**-4] * 10 + [float(length) for length in range(1, 41)]
    curves = [
        curve(one, seed, [loss * chance.uniform(1, 1.5) for loss in grown], list(range(1, 51)))
        for one in (*FIGURES["1c"], Configuration("mean"))
        for seed in SEEDS
    ]
    facts = {"made_with": {"torch": "2"}, "settings": {"steps": 5}, "command": "the command"}
    files = bits_page.write(curves, tmp_path, facts)
    page = files[0].read_text()
    assert "- command: `the command`" in page
    assert "Within one bit it is not: that holds up to length 10 [10, 10]" in page
    assert "not within a factor of 3; 0 of 5 seeds stay below 1e-05" in page
    assert "Not trained: figures 3a, 4a, 4b, 5." in page
    assert "3 of 4 curves are not trained." in page
    assert all(
        f"synthetic-{name}.svg" in page and (tmp_path / f"synthetic-{name}.svg").is_file() for name in ("1a", "1b", "1c")
    )
    document = json.loads(files[1].read_text())
    assert len(document["curves"]) == len(curves)
    assert document["theorem_1"][0]["test_length"] == 11
