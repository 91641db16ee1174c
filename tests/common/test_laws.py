"""The shared formulae against their papers' numbers."""

from __future__ import annotations

import math

import pytest

from lengthwise.common.laws import alibi_slopes, log_law


def test_the_log_law_is_1_up_to_the_training_length_and_falls_beyond_it() -> None:
    assert log_law(512, 1) == log_law(512, 512) == 1.0
    assert log_law(512, 2048) == pytest.approx(math.log(512) / math.log(2048)) == pytest.approx(9 / 11)


def test_slopes_of_a_power_of_two_are_a_geometric_sequence() -> None:
    assert alibi_slopes(8) == [2.0**-h for h in range(1, 9)]


def test_slopes_of_other_numbers_of_heads_take_every_other_of_the_next_power() -> None:
    assert alibi_slopes(12) == alibi_slopes(8) + alibi_slopes(16)[:8:2]
