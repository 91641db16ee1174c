"""Self-Extend: near keys stand where they are, far ones in groups that share a position.

    distance'(i, j) = i - j                                        below w          Jin et al. 2024
                    = floor(i/G) - floor(j/G) + w - floor(w/G)     from there on

Places count from the start of the row's own sequence; keys behind the row are placed likewise where a mask is bidirectional.
G is `group`, by default 8, and w is `window`, by default a quarter of the training length, as the released code has for Llama
2: where G divides w, inputs of up to (n_train - w) G + w tokens meet no distance that the model never saw.

Paper: Jin et al. 2024, arXiv:2401.01325
Code: https://github.com/datamllab/LongLM
"""

from __future__ import annotations

from dataclasses import dataclass

from lengthwise.attention.parts import Part, as_they_stand, near_and_far, with_keys
from lengthwise.attention.visible import Visible
from lengthwise.errors import require


@dataclass(frozen=True)
class SelfExtend:
    train_length: int
    group: int = 8
    window: int = None  # type: ignore[assignment]  # a number once the method is made

    def __post_init__(self) -> None:
        if self.window is None:
            object.__setattr__(self, "window", max(self.train_length // 4, self.group))
        require(self.group >= 1, f"self_extend needs group >= 1, not {self.group}: so many far keys share a position")
        require(
            self.group <= self.window,
            f"a group of {self.group} is larger than the window of {self.window}: the first group would begin inside it",
        )
        require(
            self.window < self.train_length,
            f"a window of {self.window} leaves nothing of the training length {self.train_length} for far keys",
        )

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        near, before, behind = near_and_far(seen, self.window)
        query, key = (place // self.group for place in whole.places)
        beyond = self.window - self.window // self.group
        return with_keys([as_they_stand(near), Part(before, query + beyond, key), Part(behind, query - beyond, key)])

    def leaves_alone(self, length: int) -> bool:
        return length <= self.window or self.group == 1
