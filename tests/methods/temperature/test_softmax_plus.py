"""Softmax plus: the logarithm to base 512."""

from __future__ import annotations

import pytest
import torch

from lengthwise.methods.temperature.softmax_plus import SoftmaxPlus


def test_softmax_plus_is_the_logarithm_to_base_512() -> None:
    g = SoftmaxPlus().inverse_temperature(torch.tensor([1, 8, 64, 512, 4096, 2**18]))
    assert g.tolist() == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0, 4 / 3, 2.0])


def test_softmax_plus_takes_another_base() -> None:
    assert SoftmaxPlus(base=16).inverse_temperature(torch.tensor([64])).tolist() == pytest.approx([1.5])


def test_softmax_plus_with_its_clamp_leaves_rows_up_to_512_alone() -> None:
    g = SoftmaxPlus(clamp=True).inverse_temperature(torch.tensor([1, 8, 512, 4096]))
    assert g[:3].tolist() == [1.0, 1.0, 1.0]
    assert float(g[3]) == pytest.approx(4 / 3)
