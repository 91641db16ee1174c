"""Proposition 2 by hand, and the entropy it restores."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.errors import BadInput
from lengthwise.methods.temperature.proposition2 import Proposition2, proposition2


def test_the_temperature_is_the_one_worked_out_by_hand() -> None:
    # sqrt(1 + 2 * 1.5) = 2
    assert proposition2(100, 100 * math.exp(1.5), sigma_train=1.0, sigma=1.0) == pytest.approx(0.5)
    assert proposition2(100, 100 * math.exp(1.5), sigma_train=1.0, sigma=3.0) == pytest.approx(1.5)


def test_the_training_length_keeps_temperature_one() -> None:
    assert proposition2(512, 512, sigma_train=1.7, sigma=1.7) == pytest.approx(1.0)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    train_length=st.floats(2, 4096),
    times=st.floats(1, 1000),
    sigma_train=st.floats(0.1, 5),
    sigma=st.floats(0.1, 5),
)
def test_the_temperature_restores_the_entropy_of_gaussian_logits(
    train_length: float, times: float, sigma_train: float, sigma: float
) -> None:
    t = proposition2(train_length, train_length * times, sigma_train, sigma)
    entropy = math.log(train_length) - sigma_train**2 / 2
    assert math.log(train_length * times) - sigma**2 / (2 * t**2) == pytest.approx(entropy, abs=1e-9)


def test_the_method_sharpens_long_rows_and_leaves_short_ones_alone() -> None:
    # sqrt(1 + 2 ln 2), sqrt(1 + 2 ln 64)
    g = Proposition2(train_length=64, sigma_train=1.0).inverse_temperature(torch.tensor([[[1, 64, 128, 4096]]]))
    assert g[0, 0, :2].tolist() == [1.0, 1.0]
    assert g[0, 0, 2:].tolist() == pytest.approx([1.544764, 3.052502], abs=1e-6)
    assert g.dtype == torch.float32


def test_the_method_takes_another_sigma_at_length() -> None:
    g = Proposition2(train_length=64, sigma_train=1.0, sigma=2.0).inverse_temperature(torch.tensor([64, 128]))
    assert g.tolist() == pytest.approx([1.0, 0.772382], abs=1e-6)


@pytest.mark.parametrize("sigmas", [(0.0,), (-1.0,), (1.0, 0.0)])
def test_sigmas_that_are_not_positive_are_refused(sigmas: tuple[float, ...]) -> None:
    with pytest.raises(BadInput, match="sigmas > 0"):
        Proposition2(64, *sigmas)
