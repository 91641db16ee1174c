"""The logarithm of the length, and nothing else."""

from __future__ import annotations

import pytest
import torch

from lengthwise.methods.temperature.log_length import LogLength


def test_log_length_is_the_natural_logarithm() -> None:
    g = LogLength().inverse_temperature(torch.tensor([1, 2, 1000]))
    assert g.tolist() == pytest.approx([0.0, 0.693147, 6.907755], abs=1e-6)
    assert g.dtype == torch.float32


def test_log_length_takes_a_row_that_sees_nothing_for_one_key() -> None:
    assert LogLength().inverse_temperature(torch.tensor([0])).tolist() == [0.0]
