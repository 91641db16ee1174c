"""The race's sign test, by hand."""

from __future__ import annotations

import random

from lengthwise.evaluation.recommendation.race import LEVEL, is_behind, pairs, still_in


def test_losing_every_question_is_behind_once_there_are_enough() -> None:
    # 5 losses of 5: 1/32 = 0.031; 4 of 4: 1/16
    assert is_behind([0] * 5, [1] * 5, 0.05)
    assert not is_behind([0] * 4, [1] * 4, 0.05)
    # Questions that both get right say nothing
    assert not is_behind([1] * 90 + [0] * 4, [1] * 94, 0.05)
    assert not is_behind([1, 0], [1, 0], 0.99)


def test_the_first_of_equals_leads_and_those_behind_are_dropped() -> None:
    scores = {"none": [0.0] * 20, "truncate": [1.0] * 10 + [0.0] * 10, "log": [1.0] * 20, "yarn": [1.0] * 20}
    assert still_in(scores, tests=1) == ["log", "yarn"]
    assert still_in(scores, tests=10**9) == ["log", "yarn", "truncate", "none"]
    assert pairs(4) == 6
    assert still_in({"none": [1.0, 0.0]}, pairs(1)) == ["none"]


def test_the_best_is_seldom_dropped() -> None:
    randomness, dropped = random.Random(0), 0
    for _ in range(200):
        scores = {str(k): [float(randomness.random() < 0.5 + 0.05 * (k == 0)) for _ in range(32)] for k in range(8)}
        dropped += "0" not in still_in(scores, pairs(8))
    assert dropped <= 200 * LEVEL
