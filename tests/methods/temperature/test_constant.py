"""One temperature for every length."""

from __future__ import annotations

import re

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.temperature.constant import Constant


def test_constant_is_one_over_tau_at_every_length_and_layer() -> None:
    for layer in (0, 7):
        g = Constant(tau=0.8).inverse_temperature(torch.tensor([[[1, 64, 9999]]]), layer)
        assert g.tolist() == [[[1.25, 1.25, 1.25]]]
        assert g.dtype == torch.float32


@pytest.mark.parametrize("tau", [0.0, -0.5, float("nan")])
def test_a_tau_that_is_not_positive_is_refused(tau: float) -> None:
    with pytest.raises(BadInput, match=f"tau > 0, not {tau}"):
        Constant(tau=tau)


@pytest.mark.parametrize("tau", [1e-40, 5e-324, 1e40])
def test_a_tau_whose_inverse_float32_cannot_hold_is_refused(tau: float) -> None:
    with pytest.raises(BadInput, match=re.escape(f"constant needs a tau whose inverse float32 can hold, not {tau}")):
        Constant(tau=tau)
