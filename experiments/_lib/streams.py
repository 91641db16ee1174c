"""Streams of tokens for language models: a model's own stories, or stretches of books; made once and kept in a file.

A story is sampled at temperature 1 by the plain model, within its training length. A stretch of a book begins at a paragraph.
One stream more than asked for is made: it is not scored, and alignments are calibrated on it.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments._lib.novels import unwrapped
from lengthwise.common.files import write_whole
from lengthwise.common.sequences import special_tokens
from lengthwise.common.text import read_texts
from lengthwise.errors import require
from lengthwise.evaluation.sweep.run_config import dtype_of, parameters_digest, tokenizer_digest

BATCH = 32  # stories sampled side by side


@dataclass(frozen=True)
class Source:
    """Streams that a model reads, and what their intervals need to know."""

    words: str  # what they are streams of
    made: dict[str, Any]  # what they depend on
    read: Callable[[int], tuple[Tensor, str]]  # tokens -> streams of so many, [streams, tokens]; a text to calibrate on
    stretch: int | None  # tokens of a stream that are independent of those after them; None where there is no such number


def source_of(
    model: Any, tokenizer: Any, train_length: int, seed: int, streams: int, books: Sequence[Path], folder: Path
) -> Source:
    """Stretches of `books`, or the model's own stories where there are none; kept in a file of `folder`."""
    made = {"model": parameters_digest(model), "dtype": dtype_of(model), "train_length": train_length}
    made |= {"seed": seed, "streams": streams}
    before: list[int] = []
    if books:
        texts = [unwrapped(read_texts([path])) for path in books]
        made |= {"books": _digest(texts), "tokenizer": tokenizer_digest(tokenizer)}
        before, _ = special_tokens(tokenizer)

    def read(tokens: int) -> tuple[Tensor, str]:
        # Decoded and read again, as calibration does, a text may have a few tokens less
        wanted = tokens + tokens // 8 + 64
        file = folder / "streams" / f"{_digest([made, wanted])}.json"

        if not file.exists():
            if books:
                passages = passages_of(texts, seed, streams + 1)
                rows = [_tokens(tokenizer, before, books[book], text, wanted) for book, text in passages]
            else:
                rows = [_stories(model, f"stories {seed} {stream}", train_length, wanted) for stream in range(streams + 1)]
            write_whole(file, json.dumps(rows))
        kept = torch.tensor(json.loads(file.read_text()))
        # Without what the tokenizer puts before a text by itself
        first = len(before) if books else 1
        return kept[:-1, :tokens], str(tokenizer.decode(kept[-1, first:], skip_special_tokens=False))

    if not books:
        return Source("the model's own stories", made, read, train_length)
    # Chapters of a book hang together, so whole streams are drawn again for the intervals
    return Source(f"books ({', '.join(path.stem for path in books)})", made, read, None)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def passages_of(texts: Sequence[str], seed: int, count: int) -> list[tuple[int, str]]:
    """A book and its text from some paragraph on, each from another book, or from another part of it where books are few."""
    randomness = random.Random(f"books {seed}")
    order = randomness.sample(range(len(texts)), len(texts))
    passages = []
    for stream in range(count):
        book, part = order[stream % len(order)], stream // len(order)
        parts = len(range(stream % len(order), count, len(order)))
        whole = texts[book].split("\n\n")
        paragraphs = whole[part * len(whole) // parts : (part + 1) * len(whole) // parts]
        # In the first half, so that much follows, and so that a longer stream begins with the shorter one
        first = randomness.randrange(max(1, len(paragraphs) // 2))
        passages.append((book, "\n\n".join(paragraphs[first:])))
    return passages


def _tokens(tokenizer: Any, before: list[int], book: Path, text: str, wanted: int) -> list[int]:
    # A token of running text has far fewer than 16 characters: the rest of a long book need not be read
    read = tokenizer(text[: 16 * wanted], add_special_tokens=False, verbose=False).input_ids
    tokens = [*before, *map(int, read)][:wanted]
    few = f"{book} has {len(tokens):,} tokens from where a stream begins, and {wanted:,} are needed; "
    require(len(tokens) == wanted, few + "give longer books, or more of them (--books), or shorter lengths (--length)")
    return tokens


def _stories(model: Any, seed: str, train_length: int, wanted: int) -> list[int]:
    """Batches of stories one after the other, so that a longer stream begins with the shorter one."""
    ends, stream, batch = Ends.of(model.config), list[int](), 0
    while len(stream) < wanted:
        draw = random.Random(f"{seed} {batch}").getrandbits(63)
        stream += [token for story in stories(model, ends, train_length, draw) for token in story]
        batch += 1
    return stream[:wanted]


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


@torch.no_grad()
def stories(model: Any, ends: Ends, longest: int, seed: int, count: int = BATCH) -> list[list[int]]:
    """`count` texts of at most `longest` tokens, sampled side by side at temperature 1."""
    generator = torch.Generator().manual_seed(seed)
    texts = torch.full((count, 1), ends.first)
    over = torch.tensor([ends.first, *sorted(ends.last)])
    open_ = torch.ones(count, dtype=torch.bool)
    cache = None
    while texts.shape[1] < longest and bool(open_.any()):
        output = model(input_ids=texts[:, -1:].to(model.device), past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        # The inverse of the distribution function, which is ten times faster here than torch.multinomial
        reached = output.logits[:, -1].double().softmax(-1).cumsum(-1).cpu()
        wanted = torch.rand(count, 1, dtype=torch.float64, generator=generator) * reached[:, -1:]
        step = torch.searchsorted(reached, wanted, right=True).clamp_max(reached.shape[-1] - 1)
        open_ &= ~torch.isin(step[:, 0], over)
        texts = torch.cat([texts, step], 1)
    return [ends.story(row) for row in texts.tolist()]
