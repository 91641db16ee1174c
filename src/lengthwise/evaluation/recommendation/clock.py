"""The time that was given, and how much of it is gone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Clock:
    """A stopwatch with a time limit; it starts when it is made."""

    seconds: float
    # Looked up then, not now, so that a test can bring a clock of its own
    start: float = field(default_factory=lambda: time.monotonic())

    def end(self, share: float) -> float:
        """When this share of the limit is used up, by the monotonic clock."""
        return self.start + share * self.seconds

    def left(self, share: float = 1.0) -> float:
        """Seconds left of this share of the limit; below 0 once it is used up."""
        return share * self.seconds - (time.monotonic() - self.start)
