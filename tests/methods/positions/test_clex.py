"""CLEX: NTK before training, its differential equation after it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.integrate import solve_ivp

from lengthwise.errors import BadInput
from lengthwise.methods.positions.clex import Clex
from lengthwise.methods.spec import methods_of

D, TRAIN_LENGTH = 16, 64
OWN = torch.tensor([10_000.0 ** (-2 * i / D) for i in range(D // 2)])


def trained(seed: int = 0, **options: int) -> Clex:
    method = Clex(TRAIN_LENGTH, D, seed=seed, **options)
    with torch.no_grad():
        method.down.normal_(std=0.05, generator=torch.Generator().manual_seed(1))
    return method


@pytest.mark.parametrize(("length", "t"), [(64, 1), (65, 2), (128, 2), (129, 3), (1000, 16), (4096, 64)])
def test_untrained_it_is_ntk_with_factor_two_t_minus_one(length: int, t: int) -> None:
    base = 10_000.0 * (2 * t - 1) ** (D / (D - 2))
    found = Clex(TRAIN_LENGTH, D).frequencies(OWN, length)
    assert found.tolist() == pytest.approx([base ** (-2 * i / D) for i in range(D // 2)], rel=1e-6)


def test_up_to_the_training_length_frequencies_are_the_models_own() -> None:
    method = trained()
    for length in (1, 63, 64):
        assert torch.equal(method.frequencies(OWN, length), OWN)
    assert method.leaves_alone(64)
    assert not method.leaves_alone(65)
    assert method.dynamic


@pytest.mark.parametrize("t", [1.5, 2.0, 7.0])
def test_trained_it_solves_the_equation_as_the_paper_writes_it(t: float) -> None:
    """The whole right-hand side, prior included, by another solver in float64."""
    method = trained()
    up, down = (weights.detach().double().numpy() for weights in (method.up, method.down))
    i = np.arange(D // 2)

    def slope(time: float, log_theta: np.ndarray) -> np.ndarray:
        alpha = 2 * time - 1
        ntk = (10_000.0 * alpha ** (D / (D - 2))) ** (-2 * i / D)
        x = up @ (log_theta + np.log(ntk))
        return -2 * (2 * i) / ((D - 2) * alpha) + down @ (x / (1 + np.exp(-x)))

    start = np.log(10_000.0 ** (-2 * i / D))
    solution = solve_ivp(slope, (1, t), start, rtol=1e-10, atol=1e-12).y[:, -1]
    found = method.at(OWN, t).detach()
    assert found.log().tolist() == pytest.approx(solution.tolist(), abs=2e-5)
    assert not torch.allclose(found, Clex(TRAIN_LENGTH, D).at(OWN, t), rtol=1e-2)


def test_both_matrices_learn() -> None:
    untrained, method = Clex(TRAIN_LENGTH, D), trained()
    for one in (untrained, method):
        one.frequencies(OWN, 200).log().sum().backward()
    assert untrained.down.grad is not None
    assert untrained.down.grad.abs().sum() > 0
    assert method.up.grad is not None
    assert method.up.grad.abs().sum() > 0


def test_a_seed_gives_the_same_network_and_leaves_torchs_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = Clex(TRAIN_LENGTH, D, seed=3)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first.up, Clex(TRAIN_LENGTH, D, seed=3).up)
    assert not torch.equal(first.up, Clex(TRAIN_LENGTH, D, seed=4).up)
    assert first.up.shape == (D, D // 2)
    assert Clex(TRAIN_LENGTH, D, width=5).down.shape == (D // 2, 5)


def test_weights_come_back_from_their_file(tmp_path: Path) -> None:
    method, path = trained(), tmp_path / "clex.safetensors"
    method.save(path)
    spec = f"clex:weights={path}"
    (again,) = methods_of(spec, {"train_length": TRAIN_LENGTH, "rotary_size": D})
    assert isinstance(again, Clex)
    assert torch.equal(again.frequencies(OWN, 1000), method.frequencies(OWN, 1000))
    with pytest.raises(BadInput, match="does not hold CLEX weights of this size"):
        Clex(TRAIN_LENGTH, 2 * D, weights=str(path))
    save_file({"other": torch.zeros(1)}, path)
    with pytest.raises(BadInput, match="does not hold CLEX weights"):
        Clex(TRAIN_LENGTH, D, weights=str(path))
    path.write_bytes(b"no safetensors")
    with pytest.raises(BadInput, match="does not hold CLEX weights"):
        Clex(TRAIN_LENGTH, D, weights=str(path))
    with pytest.raises(BadInput, match="no CLEX weights"):
        Clex(TRAIN_LENGTH, D, weights=str(tmp_path / "nowhere"))


def test_the_temperature_is_one_number_a_sequence_and_not_clamped() -> None:
    method = Clex(TRAIN_LENGTH, D)
    # ln 4096 / ln 64 = 2, ln 8 / ln 64 = 1/2
    g = method.inverse_temperature(torch.tensor([[[1, 64, 4096]], [[1, 8, 2]]]), layer=1)
    assert g.flatten().tolist() == pytest.approx([2.0, 0.5])
    assert g.broadcast_to(2, 3, 3).dtype == torch.float32
    assert method.inverse_temperature(torch.arange(1, TRAIN_LENGTH + 1)[None, None]).tolist() == [[[1.0]]]
    without = Clex(TRAIN_LENGTH, D, log_scale=False)
    assert without.inverse_temperature(torch.tensor([[[1, 4096]]])).tolist() == [[[1.0]]]


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(BadInput, match="made for 8 pairs, this model rotates 4; write clex:rotary_size=8"):
        Clex(TRAIN_LENGTH, D).frequencies(OWN[:4], 1)
    with pytest.raises(BadInput, match="some that are 0"):
        Clex(TRAIN_LENGTH, D).frequencies(OWN * 0, 1)
    with pytest.raises(BadInput, match=r"from t = 1, the training length, not at 0\.5"):
        Clex(TRAIN_LENGTH, D).at(OWN, 0.5)
    for arguments in ({"rotary_size": 7}, {"width": 0}, {"steps": 0}, {"train_length": 1}):
        with pytest.raises(BadInput, match=f"not {next(iter(arguments.values()))}"):
            Clex(**{"train_length": TRAIN_LENGTH, "rotary_size": D, **arguments})


def test_a_finer_grid_changes_nothing() -> None:
    coarse, fine = trained().at(OWN, 5.0), trained(steps=80).at(OWN, 5.0)
    torch.testing.assert_close(coarse, fine, rtol=1e-5, atol=0)
