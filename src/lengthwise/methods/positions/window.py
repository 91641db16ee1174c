"""Window: a row sees only its nearest keys, the last ones in a causal model.

    j in visible(i)   when   |i - j| < size                         Beltagy et al. 2020; Entropy Invariance's windowed attention

Causal rows see `size` keys, bidirectional rows up to size - 1 on each side. By default `size` is the training length.

Paper: Beltagy et al. 2020, arXiv:2004.05150
Code: https://github.com/allenai/longformer
"""

from __future__ import annotations

from dataclasses import dataclass

from lengthwise.attention.visible import Visible
from lengthwise.errors import require


@dataclass(frozen=True)
class Window:
    size: int = None  # type: ignore[assignment]  # a number once the method is made
    train_length: int | None = None

    def __post_init__(self) -> None:
        if self.size is None:
            require(self.train_length is not None, "window needs its size or a training length; write window:size=...")
            object.__setattr__(self, "size", self.train_length)
        require(self.size >= 1, f"window needs size >= 1, not {self.size}")
        require(
            self.train_length is None or self.size <= self.train_length,
            f"a window of {self.size} is larger than the training length {self.train_length}: "
            "it would show positions the model never saw",
        )

    def narrow(self, whole: Visible) -> Visible:
        return whole.around(1 - self.size, self.size)

    def leaves_alone(self, length: int) -> bool:
        return length <= self.size
