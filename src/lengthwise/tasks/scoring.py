"""Best subspan exact match (Liu et al. 2023): whether an answer holds one of the right answers.

Both are normalised as in SQuAD: lower case, no ASCII punctuation, no articles, single spaces. A right answer of which nothing
is left, such as "*" or "The", is in every text and tells nothing: it never counts.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(PUNCTUATION)).split())


def best_subspan_em(prediction: str, answers: Iterable[str]) -> float:
    said = normalised(prediction)
    return float(any(answer in said for answer in map(normalised, answers) if answer))
