"""Training batches as a function of the step, on any device: a run that is taken up again sees what it would have seen.

Windows of a chapter between [CLS] and [SEP]; 15 % of their tokens are asked for, the same number in each, of which 80 % are
hidden, 10 % replaced by any token and 10 % left as they are (BERT). PoSE moves the second part of a window to a later place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.entropy_invariance.prose import Chapter
from lengthwise.errors import require

ASKED, HIDDEN, REPLACED = 0.15, 0.8, 0.1


@dataclass(frozen=True)
class Special:
    """Token numbers that mean something to the model."""

    cls: int
    sep: int
    mask: int
    vocabulary: int  # all tokens

    @classmethod
    def of(cls, tokenizer: Any) -> Special:
        return cls(tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id, len(tokenizer))


class Windows:
    """All windows of some chapters, [CLS] and [SEP] included in their length."""

    def __init__(self, chapters: Sequence[Chapter], length: int, special: Special, device: str) -> None:
        require(length >= 3, f"a window needs 3 tokens, one of them between [CLS] and [SEP], not {length}")
        self.inner, self.special = length - 2, special
        long_enough = [torch.from_numpy(chapter.tokens) for chapter in chapters if len(chapter.tokens) >= self.inner]
        require(bool(long_enough), f"no chapter has {self.inner} tokens; give longer texts or a shorter --length")
        starts, before = [], 0
        for tokens in long_enough:
            starts.append(torch.arange(before, before + len(tokens) - self.inner + 1))
            before += len(tokens)
        self.tokens, self.starts = torch.cat(long_enough).to(device), torch.cat(starts).to(device)

    def drawn(self, count: int, generator: torch.Generator) -> Tensor:  # [count, length]
        device = self.tokens.device
        first = self.starts[torch.randint(len(self.starts), (count,), generator=generator, device=device)]
        inner = self.tokens[first[:, None] + torch.arange(self.inner, device=device)]
        ends = [torch.full((count, 1), token, device=device) for token in (self.special.cls, self.special.sep)]
        return torch.cat((ends[0], inner, ends[1]), 1)


def seeded(device: str, *numbers: int) -> torch.Generator:
    """One generator for every tuple of small numbers."""
    seed = 0
    for number in numbers:
        seed = seed * 1_000_003 + number
    return torch.Generator(device).manual_seed(seed % 2**63)


def hidden(ids: Tensor, special: Special, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """The inputs [batch, length], and the places and tokens asked for, both [batch, asked]; never the first or last token."""
    inner = ids.shape[1] - 2
    draws = {"generator": generator, "device": ids.device}
    where = 1 + torch.rand(len(ids), inner, **draws).topk(max(1, round(ASKED * inner))).indices
    targets, how = ids.gather(1, where), torch.rand(where.shape, **draws)
    any_token = torch.randint(special.vocabulary, where.shape, **draws)
    left = torch.where(how < HIDDEN + REPLACED, any_token, targets)
    return ids.scatter(1, where, torch.where(how < HIDDEN, special.mask, left)), where, targets


def pose_positions(batch: int, length: int, target: int, generator: torch.Generator) -> Tensor:  # [batch, length]
    """`lengthwise.methods.positions.pose` for a whole batch at once."""
    require(target >= length, f"--pose needs at least the {length} tokens of a window, not {target}")
    device = generator.device
    first = torch.randint(1, (length + 1) // 2 + 1, (batch, 1), generator=generator, device=device)
    shift = torch.randint(0, target - length + 1, (batch, 1), generator=generator, device=device)
    place = torch.arange(length, device=device)[None]
    return torch.where(place < first, place, place + shift)
