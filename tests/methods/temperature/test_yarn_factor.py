"""YaRN's factor, fixed and by row."""

from __future__ import annotations

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.temperature.yarn_factor import YarnFactor


def test_a_fixed_factor_is_the_same_at_every_length() -> None:
    # (0.1 ln 16 + 1)^2
    g = YarnFactor(train_length=64, factor=16).inverse_temperature(torch.tensor([1, 64, 10000]))
    assert g.tolist() == pytest.approx([1.631390] * 3, abs=1e-6)


def test_without_a_factor_each_row_takes_its_own() -> None:
    # (0.1 ln 2 + 1)^2, (0.1 ln 4 + 1)^2
    g = YarnFactor(train_length=64).inverse_temperature(torch.tensor([[[128, 256]]]))
    assert g.tolist() == [[pytest.approx([1.143434, 1.296477], abs=1e-6)]]


def test_without_a_factor_short_rows_are_left_alone() -> None:
    assert YarnFactor(train_length=64).inverse_temperature(torch.arange(1, 65)).eq(1).all()


def test_a_factor_of_one_changes_nothing() -> None:
    assert YarnFactor(train_length=64, factor=1.0).inverse_temperature(torch.tensor([1, 999])).tolist() == [1.0, 1.0]


def test_a_factor_below_one_is_refused() -> None:
    with pytest.raises(BadInput, match=r"factor >= 1, not 0\.5"):
        YarnFactor(train_length=64, factor=0.5)
