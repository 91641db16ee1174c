"""Masked tokens: how well a model names a token that is hidden from it, from all the others of its document.

    PPL = exp(mean over hidden tokens of -ln p(token))                                      Entropy Invariance, A.3
    ACC = share of them that the model finds likeliest

The paper hides every token of a document, one at a time, a forward each. A seeded sample gives the same number within its
interval; in long documents a few tokens, hundreds apart, can be hidden at once, where training hides one in seven. Documents
are drawn again for PPL's interval, because the tokens of one share its difficulty; ACC's takes tokens one by one, and is a
little narrow for it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lengthwise.errors import require
from lengthwise.records import mean_interval
from lengthwise.tasks.perplexity import by_bucket


@dataclass(frozen=True)
class MaskedTokenScore:
    """Perplexity and accuracy over the hidden tokens of all documents, with the ends of 95 % intervals."""

    perplexity: float
    perplexity_low: float
    perplexity_high: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    tokens: int  # hidden, over all documents


def places(length: int, count: int, seed: str, edge: int = 0) -> list[int]:
    """`count` of a document's tokens, each as likely as any other; the first and last `edge` ones are never taken."""
    free = length - 2 * edge
    require(1 <= count <= free, f"{count} tokens cannot be hidden in {length}, of which {max(0, free)} may be; ask for fewer")
    return sorted(random.Random(seed).sample(range(edge, length - edge), count))


def together(where: Sequence[int], length: int, tokens_each: int | None) -> list[list[int]]:
    """Places grouped by the copy of the document that hides them: one for every `tokens_each` tokens; None hides one alone."""
    at_once = 1 if tokens_each is None else max(1, length // tokens_each)
    copies = -(-len(where) // at_once)
    return [list(where[at::copies]) for at in range(copies)]


def hidden(tokens: ArrayLike, groups: Sequence[Sequence[int]], mask: int) -> NDArray[np.int64]:  # [groups, length]
    """A copy of the document for each group of places, with only those tokens hidden."""
    copies = np.tile(np.asarray(tokens, dtype=np.int64), (len(groups), 1))
    for copy, places_ in zip(copies, groups, strict=True):
        copy[list(places_)] = mask
    return copies


def score(nll: ArrayLike, right: ArrayLike) -> MaskedTokenScore:
    """Score tables of [documents, hidden tokens]: -ln p of each, and 1 where it was found likeliest."""
    hits = np.asarray(right, dtype=np.float64)
    shape = np.shape(nll)
    require(hits.shape == shape, f"{shape} likelihoods and {hits.shape} hits are not of the same hidden tokens")
    require(bool(np.isin(hits, (0.0, 1.0)).all()), "a hidden token is named or not: its hit must be 0 or 1")
    (whole,) = by_bucket(nll, [0, max(1, hits.shape[-1] if hits.ndim else 1)])
    accuracy = mean_interval(hits.ravel().tolist())
    return MaskedTokenScore(whole.perplexity, whole.low, whole.high, *accuracy, whole.tokens)
