"""Every length method on a model's own stories: perplexity by position, against re-encoding, alone and combined.

    python -m experiments.rope_methods.stories MODEL --length 2048 --length 8192 --streams 4 --out runs/rope_methods

Samples the streams, re-encodes them, calibrates and measures. The same command again goes on where the last one stopped, and
several of them at once share the work. OUT then holds rope_methods.json, rope_methods.md and its pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torch import Tensor

from experiments._lib.command import exit_status
from experiments.rope_methods import comparison
from experiments.rope_methods.arguments import given
from experiments.rope_methods.comparison import Options, Source, Subject
from experiments.rope_methods.gold import Reencoding
from experiments.rope_methods.results import Results
from experiments.rope_methods.streams import spare
from experiments.rope_methods.telling import told_streams

LENGTHS = (2048, 8192)


def source(subject: Subject) -> Source:
    """No story is longer than the training length, and each is told without the others."""

    def read(tokens: int) -> tuple[Tensor, str]:
        streams = told_streams(subject.model, subject.made, tokens + spare(tokens), subject.options.out / "streams.json")
        # Without the first token, which the tokenizer puts before a text by itself
        return streams[:-1, :tokens], str(subject.tokenizer.decode(streams[-1, 1:], skip_special_tokens=False))

    train = subject.train_length
    return Source("stories", "the model's own stories", read, Reencoding(train), stretch=train)


def compare(options: Options) -> Results:
    return comparison.compare(options, source)


def main(arguments: Sequence[str] | None = None) -> int:
    found = given(comparison.comparison_parser(__doc__), arguments, LENGTHS)
    return exit_status(lambda: compare(Options(**found)))


if __name__ == "__main__":
    sys.exit(main())
