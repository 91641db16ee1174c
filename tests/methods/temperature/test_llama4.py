"""Llama 4's steps."""

from __future__ import annotations

import pytest
import torch

from lengthwise.methods.temperature.llama4 import Llama4


def test_llama4_is_one_below_the_first_step() -> None:
    assert Llama4().inverse_temperature(torch.tensor([1, 4096, 8191])).tolist() == [1.0, 1.0, 1.0]


def test_llama4_steps_up_at_multiples_of_8192() -> None:
    # 1 + 0.1 ln 2, 1 + 0.1 ln 2, 1 + 0.1 ln 3, 1 + 0.1 ln 17
    g = Llama4().inverse_temperature(torch.tensor([[[8192, 16383, 16384, 131072]]]))
    assert g.tolist() == [[pytest.approx([1.069315, 1.069315, 1.109861, 1.283321], abs=1e-6)]]


def test_llama4_takes_its_own_beta_and_floor() -> None:
    # 1 + 0.5 ln 3
    g = Llama4(beta=0.5, floor_length=10).inverse_temperature(torch.tensor([9, 29]))
    assert g.tolist() == pytest.approx([1.0, 1.549306], abs=1e-6)
