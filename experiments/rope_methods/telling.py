"""A model's own stories: text it finds easy, at any length, without a corpus.

A story is sampled at temperature 1 from the token that begins a text, by the plain model, within its training length, and cut
where the model ends it. Stories follow one another as texts do in training. A stream grows by whole batches of stories, so a
longer one begins with the shorter one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.rope_methods.streams import Made, kept_streams
from lengthwise.errors import require

BATCH = 32  # stories sampled side by side


@dataclass(frozen=True)
class Ends:
    """The tokens that begin and end a text."""

    first: int
    last: frozenset[int]

    @classmethod
    def of(cls, config: Any) -> Ends:
        first, last = config.bos_token_id, config.eos_token_id
        require(first is not None, "the model's config names no token that begins a text (bos_token_id); give another model")
        return cls(int(first), frozenset(last if isinstance(last, list) else [] if last is None else [int(last)]))

    def story(self, tokens: list[int]) -> list[int]:
        """Cut where it ends: with its last token, but without the first one of the next text."""
        for at, token in enumerate(tokens[1:], 1):
            if token == self.first:
                return tokens[:at]
            if token in self.last:
                return tokens[: at + 1]
        return tokens


def told_streams(model: Any, made: Made, tokens: int, file: Path) -> Tensor:  # [made.streams + 1, tokens]
    """Streams of stories, kept in `file`."""

    def grown(before: dict[str, Any]) -> dict[str, Any]:
        ends, streams = Ends.of(model.config), before.get("tokens") or [[] for _ in range(made.streams + 1)]
        batches = before.get("batches") or [0] * len(streams)
        for index, stream in enumerate(streams):
            while len(stream) < tokens:
                seed = random.Random(f"stories {made.seed} {index} {batches[index]}").getrandbits(63)
                stream += [token for story in stories(model, ends, made.train_length, seed) for token in story]
                batches[index] += 1
        return {"batches": batches, "tokens": streams}

    return kept_streams(file, made, tokens, grown)


@torch.no_grad()
def stories(model: Any, ends: Ends, longest: int, seed: int, count: int = BATCH) -> list[list[int]]:
    """`count` texts of at most `longest` tokens, sampled side by side at temperature 1."""
    generator = torch.Generator().manual_seed(seed)
    told = torch.full((count, 1), ends.first)
    over = torch.tensor([ends.first, *sorted(ends.last)])
    open_ = torch.ones(count, dtype=torch.bool)
    cache = None
    while told.shape[1] < longest and bool(open_.any()):
        output = model(input_ids=told[:, -1:].to(model.device), past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        # The inverse of the distribution function, which is ten times faster here than torch.multinomial
        reached = output.logits[:, -1].double().softmax(-1).cumsum(-1).cpu()
        wanted = torch.rand(count, 1, dtype=torch.float64, generator=generator) * reached[:, -1:]
        step = torch.searchsorted(reached, wanted, right=True).clamp_max(reached.shape[-1] - 1)
        open_ &= ~torch.isin(step[:, 0], over)
        told = torch.cat([told, step], 1)
    return [ends.story(row) for row in told.tolist()]
