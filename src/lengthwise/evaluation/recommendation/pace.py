"""How long the answers of a recommendation take, as far as they were timed, and what time that leaves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from lengthwise.evaluation.recommendation.clock import Clock
from lengthwise.evaluation.recommendation.exam import FRESH, ROUNDS
from lengthwise.evaluation.recommendation.measure import Scored
from lengthwise.methods.spec import NONE, TRUNCATE

FEWEST_FRESH = max(1, FRESH[0] // 2)  # fresh questions of a task where there is no time for more


@dataclass
class Pace:
    """Seconds of answers by method, and the clock that they are held against."""

    clock: Clock
    # Of one sample of every task, at the length and at the training length; as long as it is not known, guessed
    at_length: dict[str, float] = field(default_factory=dict)
    inside: dict[str, float] = field(default_factory=dict)
    fastest: float = math.inf  # answer at the length: others wait for what else the machine does

    def sample(self, method: str) -> float:
        """Seconds of one sample at both lengths; at the training length truncation is the plain model."""
        return self.at_length[method] + self.inside.get(NONE if method == TRUNCATE else method, 0.0)

    def confirming(self, samples: int, racing: Iterable[str] = (NONE,)) -> float:
        """Seconds that so many fresh samples of each task will take, whichever method wins, and then two counts of memory."""
        baselines = sum(self.sample(name) for name in (NONE, TRUNCATE) if name in self.at_length)
        return samples * (baselines + max(map(self.sample, racing))) + 2 * self.at_length[NONE]

    def left_to_confirm(self, racing: Iterable[str] = (NONE,)) -> float:
        """Seconds until no more can be done than to confirm with the fewest questions."""
        return self.clock.left() - self.confirming(FRESH[0], racing)

    def left_to_fit(self, fitted: int) -> float:
        """`left_to_confirm`, but for the race's first round of what is fitted, of those fitted before and of one more."""
        return self.left_to_confirm() - (fitted + 2) * ROUNDS[0] * self.sample(NONE)

    def shortest(self, rounds: int) -> float:
        """Seconds of so many first rounds of the plain model and of the fewest fresh questions."""
        return rounds * ROUNDS[0] * self.sample(NONE) + self.confirming(FEWEST_FRESH)


def seconds_of(answers: Iterable[Scored], method: str) -> float:
    return sum((answer.seconds for answer in answers if answer.method == method), 0.0)
