"""What scores have in common: lines and numbers out of an answer, and whether it holds one of the right answers."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """A text as SQuAD compares it: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(PUNCTUATION)).split())


def best_subspan_em(prediction: str, answers: Iterable[str]) -> float:
    """Best subspan exact match (Liu et al. 2023): 1 where the prediction holds one of the right answers, normalised.

    A right answer of which nothing is left, such as "*" or "The", is in every text and tells nothing: it never counts.
    """
    text = normalised(prediction)
    return float(any(answer in text for answer in map(normalised, answers) if answer))


def word_f1(prediction: str, target: str) -> float:
    """F1 over words, normalised (Rajpurkar et al. 2016): twice the words that both share, over the words of both."""
    said, wanted = (Counter(normalised(text).split()) for text in (prediction, target))
    both = said.total() + wanted.total()
    # Articles do not count, unless there is nothing else
    return 2 * (said & wanted).total() / both if both else float(prediction.casefold().split() == target.casefold().split())


def first_line(answer: str) -> str:
    """The first line of an answer that is not blank, without the white space around it."""
    # Not splitlines: it breaks at form feeds and separators, which stand within lines of code
    return next((line.strip() for line in re.split(r"[\r\n]", answer) if line.strip()), "")


def is_first_integer(prediction: str, target: str) -> float:
    """1 where the first whole number of the prediction is the target."""
    return float(re.findall(r"\d+", prediction)[:1] == [target])


def is_last_integer(prediction: str, target: str) -> float:
    return float(re.findall(r"\d+", prediction)[-1:] == [target])
