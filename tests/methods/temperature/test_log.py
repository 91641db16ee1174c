"""The log law at powers of two, where it is a fraction."""

from __future__ import annotations

import pytest
import torch

from lengthwise.methods.temperature.log import Log


def test_log_is_the_ratio_of_logarithms() -> None:
    g = Log(train_length=8).inverse_temperature(torch.tensor([[[8, 16, 64, 512]]]))
    assert g.tolist() == [[pytest.approx([1.0, 4 / 3, 2.0, 3.0])]]
    assert g.dtype == torch.float32


def test_log_gives_the_temperature_of_the_papers_tables() -> None:
    # log_15000(512)
    g = Log(train_length=512).inverse_temperature(torch.tensor([15000]))
    assert (1 / g).tolist() == pytest.approx([0.648757], abs=1e-6)


def test_log_leaves_short_rows_alone() -> None:
    assert Log(train_length=64).inverse_temperature(torch.arange(1, 65)).eq(1).all()


def test_log_without_its_clamp_flattens_short_rows() -> None:
    g = Log(train_length=64, clamp=False).inverse_temperature(torch.tensor([0, 1, 8, 64, 512]))
    assert g.tolist() == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.5])
