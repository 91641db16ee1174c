"""What a score means, and how it is told: the share of questions that are right, or the likelihood of a text.

Scores are larger where a method is better, so that one race serves both; a text's are minus its nats a token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Protocol

from lengthwise.records.intervals import mean_interval, paired_interval
from lengthwise.tasks.perplexity import by_bucket, compared

Scores = Sequence[float]


class Scored(Protocol):
    """The score of one method on one question, or at one place of a text."""

    @property
    def method(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def length(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def score(self) -> float: ...
    @property
    def seconds(self) -> float: ...


@dataclass(frozen=True)
class ShareRight:
    """The share of questions that are right; scores lie between 0 and 1."""

    where: str  # "questions at 4,096 tokens"
    name: ClassVar[str] = "share right"  # as the recipe's evidence has it
    asked: ClassVar[str] = "questions"
    doing: ClassVar[str] = "An answer"  # what takes time

    def interval(self, scores: Scores) -> tuple[float, float, float]:
        """(mean, low, high) in the measure's own numbers."""
        return mean_interval(scores)

    def beats(self, mine: Scores, theirs: Scores) -> bool:
        """Whether a method is worth using instead of doing nothing or truncating."""
        return fmean(mine) > fmean(theirs)

    def reads_already(self, plain: Scores, truncated: Scores | None) -> bool:
        """Whether the plain model does well at the length."""
        return fmean(plain) >= 0.85

    def told(self, scores: Scores) -> str:
        """The mean and its interval, as a part of a sentence."""
        mean, low, high = map(_percent, mean_interval(scores))
        return f"{mean} of {self.where} right (95 % interval {low} to {high})"

    def brief(self, scores: Scores) -> str:
        """The mean alone."""
        return _percent(fmean(scores))

    def gain(self, mine: Scores, theirs: Scores) -> str:
        """By how much the first are ahead of the second, on the same questions."""
        mean, low, high = paired_interval([a - b for a, b in zip(mine, theirs, strict=True)])
        return f"{100 * mean:+.0f} points (95 % interval {100 * max(-1, low):+.0f} to {100 * min(1, high):+.0f})"


@dataclass(frozen=True)
class TextLikelihood:
    """How well a text's next tokens are predicted: scores are minus nats a token, -inf where a model gives no number."""

    where: str
    name: ClassVar[str] = "nats a token"
    asked: ClassVar[str] = "places"
    doing: ClassVar[str] = "A reading"

    def interval(self, scores: Scores) -> tuple[float, float, float] | None:
        """None where the model gives no number."""
        if not _finite(scores):
            return None
        (whole,) = by_bucket(_nats(scores), [0, 1])
        return -fmean(scores), math.log(whole.low), math.log(whole.high)

    def beats(self, mine: Scores, theirs: Scores) -> bool:
        # Likelihoods always differ a little
        if not _finite(theirs):
            return _finite(mine)
        return _finite(mine) and compared(_nats(mine), _nats(theirs)).high < 1

    def reads_already(self, plain: Scores, truncated: Scores | None) -> bool:
        return truncated is not None and self.beats(plain, truncated)

    def told(self, scores: Scores) -> str:
        ends = self.interval(scores)
        inside = "" if ends is None else f" (95 % interval {perplexity(ends[1])} to {perplexity(ends[2])})"
        return f"perplexity {self.brief(scores)} on {self.where}{inside}"

    def brief(self, scores: Scores) -> str:
        return perplexity(-fmean(scores)) if _finite(scores) else "not a number"

    def gain(self, mine: Scores, theirs: Scores) -> str:
        if not (_finite(mine) and _finite(theirs)):
            return "which tells the text with numbers that are not finite"
        ratio = compared(_nats(mine), _nats(theirs))
        times = f"perplexity times {ratio.ratio:.3f} (95 % interval {ratio.low:.3f} to {ratio.high:.3f})"
        return f"{fmean(theirs) - fmean(mine):+.3f} nats a token, {times}"


Measure = ShareRight | TextLikelihood


def perplexity(nats: float) -> str:
    """The perplexity of so many nats a token."""
    return f"{math.exp(min(nats, 700)):.4g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _finite(scores: Scores) -> bool:
    return all(map(math.isfinite, scores))


def _nats(scores: Scores) -> list[list[float]]:  # [places][1]
    return [[-score] for score in scores]
