"""Proposition 1 against roots worked out by hand, and against the equation it solves."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lengthwise.errors import BadInput
from lengthwise.methods.temperature.proposition1 import Proposition1, proposition1


def test_the_root_is_the_one_worked_out_by_hand() -> None:
    # A = 9 - 1, B = 5 - 1 + 2, C = 1: 8 t^2 - 6 t + 1 = 0 has the roots 1/2 and 1/4
    t = proposition1(math.exp(5), math.exp(9), p_max=math.exp(-1), sigma_train=2.0, sigma=math.sqrt(2))
    assert t == pytest.approx(0.5)


def test_without_spread_the_temperature_is_a_ratio_of_logarithms() -> None:
    # A = 6 - 1, B = 4 - 1, C = 0
    assert proposition1(math.exp(4), math.exp(6), math.exp(-1), 0.0, 0.0) == pytest.approx(0.6)


def test_the_training_length_keeps_temperature_one() -> None:
    assert proposition1(512, 512, p_max=0.28, sigma_train=2.0, sigma=2.0) == pytest.approx(1.0)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    train_length=st.floats(64, 1024),
    times=st.floats(1, 32),
    p_max=st.floats(0.05, 1),
    sigma_train=st.floats(0.1, 2),
    sigma=st.floats(0.1, 2),
)
def test_the_root_restores_p_max_of_gaussian_logits(
    train_length: float, times: float, p_max: float, sigma_train: float, sigma: float
) -> None:
    def gaussian_p_max(l_max: float, length: float, sigma: float, t: float) -> float:
        return math.exp(l_max / t) / (length * math.exp(sigma**2 / (2 * t**2)))

    l_max = math.log(p_max * train_length) + sigma_train**2 / 2
    assert gaussian_p_max(l_max, train_length, sigma_train, 1.0) == pytest.approx(p_max)
    try:
        t = proposition1(train_length, train_length * times, p_max, sigma_train, sigma)
    except BadInput:
        assume(False)
    assert t > 0
    assert gaussian_p_max(l_max, train_length * times, sigma, t) == pytest.approx(p_max, rel=1e-6)
    # The larger of the two roots: their product is C / A
    assert t * t >= sigma**2 / 2 / math.log(train_length * times * p_max) * (1 - 1e-9)


def test_no_real_root_is_said_and_not_hidden() -> None:
    # A = 8.343, B = 6.965, C = 2: B^2 < 4 A C
    with pytest.raises(BadInput, match=r"no real root at length 15000 \(A = 8\.343, B = 6\.965, C = 2\.000\).*calibrate"):
        proposition1(512, 15000, p_max=0.28, sigma_train=2.0, sigma=2.0)


def test_no_real_root_is_said_by_the_method_too() -> None:
    method = Proposition1(train_length=512, p_max=0.28, sigma_train=2.0)
    with pytest.raises(BadInput, match="no real root at length 15000"):
        method.inverse_temperature(torch.tensor([[[512, 15000]]]))


@pytest.mark.parametrize(
    ("method", "first"),
    [
        (Proposition1(512, 0.28, 2.0), 1537),  # B^2 = 4 A C at ln n = 6.9654^2 / 8 - ln 0.28 = 7.3375
        (Proposition1(16, 0.01, 3.5), 17),  # A <= 0 up to 100 keys
        (Proposition1(1, 1.0, 0.0), 2),  # B = 0 at every length
    ],
)
def test_the_shortest_row_without_a_root_is_named_whatever_their_order(method: Proposition1, first: int) -> None:
    with pytest.raises(BadInput, match=f"no real root at length {first} "):
        method.inverse_temperature(torch.arange(4096, 0, -1))
    # Rows up to the training length are not asked
    assert method.inverse_temperature(torch.arange(method.train_length + 1)).eq(1).all()


def test_the_method_gives_the_inverse_of_the_root_at_every_row() -> None:
    # C = 0, so g = A / B, with B = ln 32 - ln 2 = 4 ln 2 and A = 6 ln 2 at 128 keys
    method = Proposition1(train_length=32, p_max=0.5, sigma_train=0.0)
    g = method.inverse_temperature(torch.tensor([[[128, 1, 512, 128]], [[32, 31, 2048, 33]]]))
    assert g.shape == (2, 1, 4)
    assert g[0, 0].tolist() == pytest.approx([6 / 4, 1.0, 8 / 4, 6 / 4])
    assert g[1, 0].tolist() == pytest.approx([1.0, 1.0, 10 / 4, math.log(16.5) / math.log(16)])


def test_the_method_takes_another_sigma_at_length() -> None:
    # In units of ln 2 = u: A = 8u, B = 6u, C = u, from n = 512, P = 1/2, n_train = 16, s_train^2 / 2 = 3u, s^2 / 2 = u
    u = math.log(2)
    method = Proposition1(train_length=16, p_max=0.5, sigma_train=math.sqrt(6 * u), sigma=math.sqrt(2 * u))
    assert method.inverse_temperature(torch.tensor([512])).tolist() == pytest.approx([2.0])


@pytest.mark.parametrize("arguments", [(512, 0.28, 2.0, 1.5), (64, 0.5, 0.0), (512, 0.05, 1.0, 0.7), (100, 0.03, 2.0, 0.2)])
def test_every_row_has_the_root_of_its_own_length(arguments: tuple[float, ...]) -> None:
    method = Proposition1(*arguments)
    n = torch.arange(1, 5001)[torch.randperm(5000, generator=torch.Generator().manual_seed(0))]
    sigma = method.sigma_train if method.sigma is None else method.sigma
    beyond = n > method.train_length
    roots = [proposition1(method.train_length, k, method.p_max, method.sigma_train, sigma) for k in n[beyond].tolist()]
    g = method.inverse_temperature(n)
    torch.testing.assert_close(g[beyond], 1 / torch.tensor(roots), rtol=2e-7, atol=0)
    assert g[~beyond].eq(1).all()


def test_a_double_root_survives_rounding() -> None:
    # sigma is such that B^2 = 4 A C, so t = B / 2A
    method = Proposition1(512, 0.15, 1.7, 1.6786311114118564)
    a, b = math.log(2535) + math.log(0.15), math.log(512) + math.log(0.15) + 1.7**2 / 2
    assert b / math.sqrt(2 * a) == pytest.approx(1.6786311114118564)
    assert method.inverse_temperature(torch.tensor([[2535]])).item() == pytest.approx(2 * a / b)


@pytest.mark.parametrize("arguments", [(0.0, 1.0), (1.1, 1.0), (0.5, -1.0), (0.5, 1.0, -1.0)])
def test_arguments_outside_their_range_are_refused(arguments: tuple[float, ...]) -> None:
    with pytest.raises(BadInput, match=r"0 < p_max <= 1|sigmas >= 0"):
        Proposition1(64, *arguments)
