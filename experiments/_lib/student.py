"""The mean of a few values, one a seed or a stream of text, with Student's 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Mean:
    """A mean and the ends of its interval, which a single value does not have."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        from scipy.stats import t

        centre, n = fmean(values), len(values)
        if n == 1:
            return cls(centre, None, None)
        half = float(t.ppf(0.975, n - 1)) * stdev(values) / math.sqrt(n)
        return cls(centre, centre - half, centre + half)

    @property
    def sign(self) -> int:
        """-1 or 1 where the whole interval is below or above 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)
