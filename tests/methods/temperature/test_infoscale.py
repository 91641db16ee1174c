"""InfoScale against the values of Entropy Invariance."""

from __future__ import annotations

import pytest
import torch

from lengthwise.methods.temperature.infoscale import InfoScale


def test_infoscale_reproduces_the_papers_values() -> None:
    law = InfoScale(train_length=64, key_size=128)
    g = law.inverse_temperature(torch.tensor([64, 128, 256, 512, 1024, 2048, 4096]))
    assert g.tolist() == pytest.approx([1.0, 1.0772, 1.1485, 1.2150, 1.2773, 1.3361, 1.3918], abs=5e-5)


def test_infoscale_on_the_plane_is_worked_out_by_hand() -> None:
    # d = 2: g = sqrt((1 - 1/n) / (1 - 1/4))
    g = InfoScale(train_length=4, key_size=2).inverse_temperature(torch.tensor([[[4, 16, 25]]]))
    assert g.tolist() == [[pytest.approx([1.0, (15 / 12) ** 0.5, (24 / 25 * 4 / 3) ** 0.5])]]
    assert g.dtype == torch.float32


def test_infoscale_leaves_short_rows_alone() -> None:
    assert InfoScale(train_length=64, key_size=128).inverse_temperature(torch.arange(1, 65)).eq(1).all()


def test_infoscale_without_its_clamp_flattens_short_rows_but_never_to_zero() -> None:
    g = InfoScale(train_length=4, key_size=2, clamp=False).inverse_temperature(torch.tensor([1, 2, 4]))
    # One key counts as two: sqrt((1 - 1/2) / (3/4))
    assert g.tolist() == pytest.approx([0.816497, 0.816497, 1.0], abs=1e-6)
