"""The time that was given, and how much of it is gone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Clock:
    """Runs from when it is made."""

    seconds: float
    start: float = field(default_factory=time.monotonic)

    def left(self, share: float = 1.0) -> float:
        """Seconds until so much of the time is gone."""
        return share * self.seconds - (time.monotonic() - self.start)
