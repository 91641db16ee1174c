"""Shifted sparse attention: train long inputs in groups, which half of the heads see moved by half a group.

    j in visible(i)   when   j <= i  and  floor((j + s) / G) = floor((i + s) / G)            Chen et al. 2024 (LongLoRA)
    G = ceil(L / groups),   s = 0 in the first half of the heads,  G - floor(G/2) in the second

A token sees its group only, and the moved heads carry what is learnt from one group to the next. The released code rolls the
tokens of the moved heads around, so that the first half group lies in one group with the last one, which it follows: it sees
the future's tokens and is seen by none of its own. Here these two half groups stay apart.

It makes training cheaper and is left out afterwards (LongLoRA evaluates with full attention), so it is no method for a loaded
model and not in the registry: `lengthwise train` takes it, and so does `extend` around a training loop.

Paper: Chen et al. 2024 (LongLoRA), arXiv:2309.12307
Code: https://github.com/dvlab-research/LongLoRA
"""

from __future__ import annotations

from dataclasses import dataclass

from lengthwise.attention.segments import Span
from lengthwise.errors import require


@dataclass(frozen=True)
class ShiftedSparse:
    groups: int = 4

    def __post_init__(self) -> None:
        require(self.groups >= 2, f"shifted sparse attention needs at least 2 groups, not {self.groups}")

    def segments(self, length: int) -> tuple[list[Span], ...]:
        """The groups of the first half of the heads, and of the second."""
        group = -(-length // self.groups)
        return _between(range(0, length, group), length), _between([0, *range(group // 2 or group, length, group)], length)


def _between(starts: range | list[int], length: int) -> list[Span]:
    return list(zip(starts, [*starts[1:], length], strict=True))
