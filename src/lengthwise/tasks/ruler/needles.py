"""RULER's eight tasks of needles in a haystack: sentences that give a key a value, and keys whose values are asked for.

| task | the haystack | needles |
|---|---|---|
| niah_single_1 | noise, the same few sentences over and over | a word and its number |
| niah_single_2, niah_single_3 | essays | a word and its number, or its UUID |
| niah_multikey_1 | essays | four words with a number each; one is asked for |
| niah_multikey_2, niah_multikey_3 | nothing but other needles | words with numbers, or UUIDs with UUIDs |
| niah_multivalue | essays | a word with four numbers, all asked for |
| niah_multiquery | essays | four words with a number each, all asked for |
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from lengthwise.common.text import read_texts, shipped_prose
from lengthwise.errors import require
from lengthwise.tasks.line import ADJECTIVES, NOUNS, endless_names
from lengthwise.tasks.material.fit_length import by_letter, by_word, fit_to_length
from lengthwise.tasks.ruler.references import joined
from lengthwise.tasks.sample import Sample, draws, endless_from_anywhere, sentences, with_inserted

NEEDLE = "One {kind} that belongs to {key} is {value}."
NOISE = "The rain falls. The wind turns. The road is long. We walk on. Nobody is late."
ANSWER_TOKENS = 128
VERSION_BITS, VERSION_4 = 0xF << 76 | 0x3 << 62, 0x4 << 76 | 0x2 << 62  # of a UUID (RFC 9562)


@dataclass(frozen=True)
class Needles:
    """One kind of needle task: what is hidden, in which haystack, and how much of it is asked for."""

    haystack: Literal["noise", "essays", "needles"]
    key: Literal["word", "UUID"] = "word"
    value: Literal["number", "UUID"] = "number"
    keys: int = 1
    values: int = 1  # of each key
    asked: int = 1  # keys


KINDS = {
    "niah_single_1": Needles("noise"),
    "niah_single_2": Needles("essays"),
    "niah_single_3": Needles("essays", value="UUID"),
    "niah_multikey_1": Needles("essays", keys=4),
    "niah_multikey_2": Needles("needles"),
    "niah_multikey_3": Needles("needles", key="UUID", value="UUID"),
    "niah_multivalue": Needles("essays", values=4),
    "niah_multiquery": Needles("essays", keys=4, asked=4),
}


def samples(
    tokenizer: Any,
    length: int,
    n: int,
    seed: int,
    depth: float | None = None,
    kind: str = "niah_single_2",
    essays: Sequence[str] | None = None,
) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; the needles asked for stand at `depth`, or anywhere.

    `essays` are sentences in their order; without them the package's prose.
    """
    prose = sentences(shipped_prose()) if essays is None else list(essays)
    require(bool(prose), "there are no sentences to hide needles in; give at least one")
    sources = draws(f"ruler {kind}", seed, n, depth)
    return [_sample(tokenizer, length, depth, KINDS[kind], prose, randomness) for randomness in sources]


def take(path: Path) -> dict[str, Any]:
    """Read the text that stands for the essays where a file is given beside lengths."""
    return {"essays": sentences(read_texts([path]))}


def _sample(
    tokenizer: Any, length: int, depth: float | None, kind: Needles, prose: list[str], randomness: random.Random
) -> Sample:
    needles = _needles(kind, randomness)
    hidden = [next(needles) for _ in range(kind.keys)]
    values = {key: [value, *(_value(kind.value, randomness) for _ in range(kind.values - 1))] for key, value in hidden}
    asked = randomness.sample(list(values), kind.asked)
    places = [
        (randomness.random() if depth is None or key not in asked else depth, _sentence(kind, key, value))
        for key in values
        for value in values[key]
    ]
    references = [value for key in asked for value in values[key]]
    question, introduction = _question(kind, asked, len(references)), _introduction(kind, len(references))
    pieces: Iterator[str] = itertools.repeat(NOISE)
    glue, cut = "\n", by_word
    if kind.haystack == "essays":
        pieces, glue = iter(endless_from_anywhere(prose, randomness)), " "
    if kind.haystack == "needles":
        pieces, cut = (_sentence(kind, key, value) for key, value in needles), by_letter

    def prompt_of(around: list[str]) -> str:
        return "\n".join([introduction, glue.join(with_inserted(around, sorted(places))), question])

    fitted = fit_to_length(tokenizer, length, pieces, prompt_of, glue=glue, cut=cut)
    where = fmean(place for place, told in places if any(reference in told for reference in references))
    return Sample(fitted.prompt, joined(references), fitted.tokens, where, question)


def _needles(kind: Needles, randomness: random.Random) -> Iterator[tuple[str, str]]:
    """Keys without end, none twice, with a value each."""
    words = endless_names(randomness, (ADJECTIVES, NOUNS))
    while True:
        yield _uuid(randomness) if kind.key == "UUID" else next(words), _value(kind.value, randomness)


def _value(kind: str, randomness: random.Random) -> str:
    return _uuid(randomness) if kind == "UUID" else str(randomness.randint(10**6, 10**7 - 1))


def _uuid(randomness: random.Random) -> str:
    """A random UUID of version 4, written in half the time that the module of that name takes."""
    digits = f"{randomness.getrandbits(128) & ~VERSION_BITS | VERSION_4:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _sentence(kind: Needles, key: str, value: str) -> str:
    return NEEDLE.format(kind=kind.value, key=key, value=value)


def _introduction(kind: Needles, count: int) -> str:
    if count == 1:
        return f"A {kind.value} is hidden in the text below. Remember it; you will be asked for it."
    return f"Some {kind.value}s are hidden in the text below. Remember them; you will be asked for them."


def _question(kind: Needles, keys: list[str], count: int) -> str:
    *others, last = keys
    named = f"{', '.join(others)} and {last}" if others else last
    if count == 1:
        return f"Which {kind.value} belongs to {named}? The {kind.value} that belongs to {named} is"
    return f"Which {kind.value}s belong to {named}? The {count} {kind.value}s that belong to {named} are"
