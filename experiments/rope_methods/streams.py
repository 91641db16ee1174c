"""Streams of a model's own stories: text it finds easy, at any length, without a corpus.

A story is sampled at temperature 1 from the token that begins a text, by the plain model, within its training length, and cut
where the model ends it. Stories follow one another as texts do in training. A stream grows by whole batches of stories, so a
longer one begins with the shorter one.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.common.together import Once, share_out
from lengthwise.errors import BadInput, require
from lengthwise.files import write_whole

FORMAT = "lengthwise.experiments.streams/1"
BATCH = 32  # stories sampled side by side


@dataclass(frozen=True)
class Made:
    """What streams depend on; another value of any of these makes other streams."""

    model: str  # digest of its parameters
    dtype: str
    train_length: int  # the longest a story may be
    seed: int
    streams: int


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


def kept_streams(model: Any, made: Made, tokens: int, file: Path) -> Tensor:  # [made.streams + 1, tokens]
    """Those in `file`, made or grown where they are missing or too short; the last one is not scored, but calibrated on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    make = partial(_grow, model, made, tokens, file)
    share_out([Once(file.with_name(f".claim-{file.name}"), lambda: _least(_read(file, made)) >= tokens, make)])
    return torch.tensor([stream[:tokens] for stream in _read(file, made)])


def _grow(model: Any, made: Made, tokens: int, file: Path) -> None:
    ends, streams = Ends.of(model.config), _read(file, made) or [[] for _ in range(made.streams + 1)]
    batches = json.loads(file.read_text())["batches"] if file.exists() else [0] * len(streams)
    for index, stream in enumerate(streams):
        while len(stream) < tokens:
            seed = random.Random(f"stories {made.seed} {index} {batches[index]}").getrandbits(63)
            stream += [token for story in stories(model, ends, made.train_length, seed) for token in story]
            batches[index] += 1
    write_whole(file, json.dumps({"format": FORMAT, **asdict(made), "batches": batches, "tokens": streams}) + "\n")


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


def _least(streams: list[list[int]]) -> int:
    return min(map(len, streams), default=0)


def _read(file: Path, made: Made) -> list[list[int]]:
    """Empty where there is no file yet."""
    if not file.exists():
        return []
    try:
        document = json.loads(file.read_text())
        found = [list(map(int, stream)) for stream in document["tokens"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{file} is not a file of streams; give another --out") from None
    for key, now in {"format": FORMAT, **asdict(made)}.items():
        if (was := document.get(key)) != now:
            raise BadInput(f"{file} was begun with another {key}: {was} then, {now} now; give another --out")
    return found
