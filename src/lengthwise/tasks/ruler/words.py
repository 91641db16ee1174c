"""RULER's two tasks of counting: the ten most common words of a list (cwe), the three most frequent of a coded text (fwe).

cwe: ten words stand 30 times each in a numbered list, all others 3 times; below 4,096 tokens 6 times and once. As in RULER, one
small list with its answer stands before the question.

fwe: of the N words of a text, N k^-2 / zeta(2), rounded down, are the k-th of a made-up vocabulary. The rest, in place of the
first, is noise and not asked for.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import string
from collections.abc import Iterator
from functools import cache
from typing import Any

from lengthwise.common.text import shipped_prose
from lengthwise.errors import NoRoom, require
from lengthwise.tasks.material.fit_length import fit_to_length
from lengthwise.tasks.ruler.references import joined
from lengthwise.tasks.sample import Sample, draws

LIST = "Below is a numbered list of words. Some words stand in it more often than others. Remember those."
MOST_COMMON = "Question: Which 10 words stand in the list most often? Answer: The 10 most common words of the list are"
CODED = "Read the coded text below, and count how often each coded word stands in it. Leave the dots out."
MOST_FREQUENT = "Question: Which 3 coded words stand in the text most often? Answer: The 3 most frequent words of the text are"
COMMON_TOKENS, FREQUENT_TOKENS = 120, 50
COMMON, FREQUENT = 10, 3  # words asked for
LONG = 4096  # tokens from which on words of a list are repeated more often
NOISE = "..."
ZETA_2 = math.pi**2 / 6


def common_words(tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; there is no `depth`."""
    return [_common(tokenizer, length, randomness) for randomness in _draws("cwe", seed, n, depth)]


def frequent_words(tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; there is no `depth`."""
    return [_frequent(tokenizer, length, randomness) for randomness in _draws("fwe", seed, n, depth)]


def _common(tokenizer: Any, length: int, randomness: random.Random) -> Sample:
    often, seldom = (30, 3) if length >= LONG else (6, 1)
    words = _words(randomness)
    shown, others, common = (list(itertools.islice(words, COMMON)) for _ in range(3))
    order = randomness.random()
    example = f"{_asked_list(shown * 3 + others, order)} {' '.join(f'{at}. {word}' for at, word in enumerate(shown, 1))}"
    # What a word adds to the prompt: its places in the list, most of whose numbers have so many digits
    number = f" {length // 8}. "
    pieces = (number.join([word] * seldom) for word in words)

    def prompt_of(added: list[str]) -> str:
        uncommon = [piece.partition(" ")[0] for piece in added]
        return "\n".join([example, "", _asked_list(common * often + uncommon * seldom, order)])

    fitted = fit_to_length(tokenizer, length, pieces, prompt_of, glue=number)
    return Sample(fitted.prompt, joined(common), fitted.tokens, None, MOST_COMMON)


def _asked_list(words: list[str], order: float) -> str:
    random.Random(order).shuffle(words)
    return "\n".join([LIST, " ".join(f"{number}. {word}" for number, word in enumerate(words, 1)), MOST_COMMON])


def _words(randomness: random.Random) -> Iterator[str]:
    """Words without end, none twice: those of the shipped prose, then two of them in one."""
    known = randomness.sample(_vocabulary(), len(_vocabulary()))
    yield from known
    met = set(known)
    while True:
        word = "".join(randomness.sample(known, 2))
        if word not in met:
            met.add(word)
            yield word


@cache
def _vocabulary() -> list[str]:
    return sorted(set(re.findall(r"\b[a-z]{4,}\b", shipped_prose())))


def _frequent(tokenizer: Any, length: int, randomness: random.Random) -> Sample:
    coded: dict[str, None] = {}
    while len(coded) < max(2 * FREQUENT, length // 50):
        coded["".join(randomness.choices(string.ascii_lowercase, k=6))] = None
    words = [NOISE, *coded]
    weights = [k**-2 / ZETA_2 for k in range(1, len(words) + 1)]
    order = randomness.random()

    def prompt_of(drawn: list[str]) -> str:
        text = [word for word, weight in zip(words[1:], weights[1:], strict=True) for _ in range(int(len(drawn) * weight))]
        text += [NOISE] * (len(drawn) - len(text))
        random.Random(order).shuffle(text)
        return "\n".join([CODED, " ".join(text), MOST_FREQUENT])

    # Only their number counts; drawn with the same weights, they take as many tokens as the words of the text
    drawn = (word for _ in itertools.count() for word in randomness.choices(words, weights, k=100))
    fitted = fit_to_length(tokenizer, length, drawn, prompt_of)
    last, next_one = (int(len(fitted.pieces) * weight) for weight in weights[FREQUENT : FREQUENT + 2])
    if last <= next_one:
        raise NoRoom(f"{length} tokens are too few for {FREQUENT} words that are more frequent than all others; give more")
    return Sample(fitted.prompt, joined(words[1 : 1 + FREQUENT]), fitted.tokens, None, MOST_FREQUENT)


def _draws(kind: str, seed: int, n: int, depth: float | None) -> list[random.Random]:
    made = draws(f"ruler {kind}", seed, n, depth)
    require(depth is None, f"ruler_{kind} has no depth, and {depth} was given: what it asks for stands everywhere")
    return made
