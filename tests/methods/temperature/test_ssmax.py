"""SSMax: s ln n."""

from __future__ import annotations

import math

import pytest
import torch

from lengthwise.methods.temperature.ssmax import SSMax


def test_ssmax_grows_with_the_logarithm() -> None:
    g = SSMax().inverse_temperature(torch.tensor([1, 2, 1000]))
    assert g.tolist() == pytest.approx([0.0, 0.298053, 2.970335], abs=1e-6)


def test_ssmax_at_one_over_ln_64_is_the_log_law_of_64() -> None:
    g = SSMax(s=1 / math.log(64)).inverse_temperature(torch.tensor([8, 64, 512]))
    assert g.tolist() == pytest.approx([0.5, 1.0, 1.5])
