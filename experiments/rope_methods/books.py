"""Every length method on books: perplexity by position, against re-encoding, alone and combined.

    python -m experiments.rope_methods.books MODEL --books FILE ... --length 2048 8192 16384 --streams 4 --out runs/books

Each stream is a stretch of a text file, from a paragraph on. For a model whose training length is in the thousands: the last
tokens are read afresh every --stride tokens, not for each. Else as `stories`: the same command goes on, several share the work.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments._lib.command import exit_status
from experiments._lib.novels import unwrapped
from experiments.rope_methods import comparison
from experiments.rope_methods.arguments import SEVERAL, given
from experiments.rope_methods.comparison import Source, Subject
from experiments.rope_methods.gold import Reencoding
from experiments.rope_methods.results import Results
from experiments.rope_methods.streams import Made, kept_streams, spare
from lengthwise.common.text import read_texts, special_tokens
from lengthwise.errors import require
from lengthwise.evaluation.sweep.run_config import tokenizer_digest

LENGTHS = (2048, 4096, 8192, 12288, 16384)
STRIDE = 512


@dataclass(frozen=True)
class Options(comparison.Options):
    """A comparison on books."""

    books: tuple[Path, ...] = ()
    stride: int = STRIDE  # tokens between two readings of re-encoding

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.books), "give at least one text file: --books FILE ...")


@dataclass(frozen=True)
class MadeOfBooks(Made):
    """Streams of books depend on these as well."""

    books: str  # digest of their texts, in their order
    tokenizer: str  # digest


def source(subject: Subject) -> Source:
    options: Options = subject.options
    texts = [unwrapped(read_texts([path])) for path in options.books]
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    made = MadeOfBooks(**asdict(subject.made), books=digest, tokenizer=tokenizer_digest(subject.tokenizer))
    before, _ = special_tokens(subject.tokenizer)

    def read(tokens: int) -> tuple[Tensor, str]:
        wanted = tokens + spare(tokens)

        def grown(_: dict[str, Any]) -> dict[str, Any]:
            passages = _passages(texts, options)
            return {"tokens": [_tokens(subject.tokenizer, before, passage, wanted) for passage in passages]}

        streams = kept_streams(options.out / "streams.json", made, wanted, grown)
        return streams[:-1, :tokens], str(subject.tokenizer.decode(streams[-1, len(before) :], skip_special_tokens=False))

    stems = ", ".join(path.stem for path in options.books)
    # Chapters of a book hang together, so whole streams are drawn again for the intervals
    return Source("books", f"books ({stems})", read, Reencoding(subject.train_length, options.stride), stretch=None)


@dataclass(frozen=True)
class Passage:
    """A stretch of a book, from a paragraph on."""

    book: Path
    text: str  # as long as it may be


def _passages(texts: Sequence[str], options: Options) -> list[Passage]:
    """One a stream, and one to calibrate on: each from another book, or from another part of it where books are few."""
    randomness = random.Random(f"books {options.seed}")
    order = randomness.sample(range(len(texts)), len(texts))
    count = options.streams + 1
    found = []
    for stream in range(count):
        book = order[stream % len(order)]
        parts = len(range(stream % len(order), count, len(order)))
        paragraphs = _part(texts[book].split("\n\n"), stream // len(order), parts)
        # In the first half, so that much follows, and so that a longer stream begins with the shorter one
        first = randomness.randrange(max(1, len(paragraphs) // 2))
        found.append(Passage(options.books[book], "\n\n".join(paragraphs[first:])))
    return found


def _part(paragraphs: list[str], index: int, parts: int) -> list[str]:
    """One of several equal parts."""
    return paragraphs[index * len(paragraphs) // parts : (index + 1) * len(paragraphs) // parts]


def _tokens(tokenizer: Any, before: list[int], passage: Passage, wanted: int) -> list[int]:
    # A token of running text has far fewer than 16 characters: the rest of a long book need not be read
    found = tokenizer(passage.text[: 16 * wanted], add_special_tokens=False, verbose=False).input_ids
    tokens = [*before, *map(int, found)][:wanted]
    require(
        len(tokens) == wanted,
        f"{passage.book} has {len(tokens):,} tokens from where a stream begins, and {wanted:,} are needed; "
        "give longer books, or more of them (--books), or shorter lengths (--length)",
    )
    return tokens


def compare(options: Options) -> Results:
    return comparison.compare(options, source)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = comparison.comparison_parser(__doc__)
    parser.add_argument("--books", type=Path, default=[], help="text files, a book each", **SEVERAL)
    parser.add_argument("--stride", type=int, default=STRIDE, help="tokens between two readings of re-encoding")
    found = given(parser, arguments, LENGTHS)
    return exit_status(lambda: compare(Options(**found)))


if __name__ == "__main__":
    sys.exit(main())
