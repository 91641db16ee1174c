"""StreamingLLM: a row sees the first few keys, its attention sinks, and a recent window.

    j in visible(i)   when   j < sinks  or  |i - j| < window        Xiao et al. 2024
    distance'(i, m) = min(i, sinks + window - 1) - m                to a sink m outside the window

Places count from the start of the row's own sequence. Sinks stand just before the window, as in a rolling cache that holds
`sinks` + `window` keys; with `reindex=false` they keep their true distance. By default both fill the training length.

Paper: Xiao et al. 2024, arXiv:2309.17453
Code: https://github.com/mit-han-lab/streaming-llm
"""

from __future__ import annotations

from dataclasses import dataclass

from lengthwise.attention.parts import Part, as_they_stand, first_keys
from lengthwise.attention.visible import Visible, is_exporting
from lengthwise.errors import require
from lengthwise.methods.base import SinksAndWindow


@dataclass(frozen=True)
class StreamingLLM:
    train_length: int
    sinks: int = 4
    window: int = None  # type: ignore[assignment]  # a number once the method is made
    reindex: bool = True

    def __post_init__(self) -> None:
        require(self.sinks >= 0, f"streaming_llm needs sinks >= 0, not {self.sinks}")
        if self.window is None:
            room = self.train_length > self.sinks
            require(room, f"{self.sinks} sinks leave no window in a training length of {self.train_length}; take fewer")
            object.__setattr__(self, "window", self.train_length - self.sinks)
        require(self.window >= 1, f"streaming_llm needs window >= 1, not {self.window}")
        require(
            self.sinks + self.window <= self.train_length,
            f"{self.sinks} sinks and a window of {self.window} are larger than the training length {self.train_length}: "
            "they would take positions the model never saw",
        )

    @property
    def sinks_and_window(self) -> SinksAndWindow:
        return SinksAndWindow(self.sinks, self.window, rolls=self.reindex, in_line=self.reindex)

    def narrow(self, whole: Visible) -> Visible:
        return whole.around(1 - self.window, self.window)

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        if self._touch(whole):
            return [as_they_stand(whole)]
        sinks = as_they_stand(first_keys(whole, seen, self.sinks))
        parts = [as_they_stand(seen)]
        if sinks.visible.sees_some:
            parts.append(self._just_before_the_window(sinks) if self.reindex else sinks)
        return parts

    def leaves_alone(self, length: int) -> bool:
        # Not sinks + window: a bidirectional row has no sinks behind it
        return length <= self.window

    def _touch(self, whole: Visible) -> bool:
        """Whether no key of any row stands between its sinks and its window, as in a rolling cache: one part is enough."""
        short = whole.stop - whole.start <= self.sinks + self.window
        return not is_exporting() and bool((short & (whole.stop <= whole.position + 1)).all())

    def _just_before_the_window(self, sinks: Part) -> Part:
        first = sinks.visible.start
        place = (sinks.query - first).clamp_max(self.sinks + self.window - 1)
        return Part(sinks.visible, first + place, sinks.key)
