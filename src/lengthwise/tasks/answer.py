"""Answer: questions of your own, a prompt and a target each, scored by whether the answer holds the target.

The target must stand in the answer as whole words: 5 is not in 15, 3.5, -5 or 1,5. Upper and lower case and white space do not
count. Two further scores are of the answer's first line: `answer_exact` asks that it be the target and nothing more, but for a
full stop; `answer_f1` is the F1 of its words, as SQuAD has it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from lengthwise.errors import BadInput
from lengthwise.tasks.material.case_files import read
from lengthwise.tasks.sample import Sample
from lengthwise.tasks.scoring import first_line, word_f1

ANSWER_TOKENS = 64
# Scripts without spaces between words, or with endings that no space parts from their word; as Unicode names their letters
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI ")
WITHIN_A_NUMBER = re.compile(r"\d[.,]\d")
SIGNED = re.compile(r"(^|\W)[-\u2212]\|\d")
__all__ = ["ANSWER_TOKENS", "exact", "f1", "read", "samples", "score"]


def samples(tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None) -> list[Sample]:
    raise BadInput("the task answer asks questions of your own and makes none: give --data FILE, and no lengths")


def score(prediction: str, target: str) -> float:
    """1 where the answer holds the target as whole words."""
    text, wanted = _comparable(prediction), _comparable(target)
    at = text.find(wanted)
    while at >= 0:
        if not (_is_within_a_word(text, at) or _is_within_a_word(text, at + len(wanted))):
            return 1.0
        at = text.find(wanted, at + 1)
    return 0.0


def exact(prediction: str, target: str) -> float:
    """1 where the answer's first line is the target."""
    wanted = _comparable(target)
    answer = _comparable(first_line(prediction))
    return float(answer == wanted or answer.rstrip(".") == wanted.rstrip(".") != "")


def f1(prediction: str, target: str) -> float:
    """The F1 of the words of the answer's first line."""
    return word_f1(_comparable(first_line(prediction)), _comparable(target))


def _comparable(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text.casefold()).split())


def _is_within_a_word(text: str, at: int) -> bool:
    around = text[max(at - 1, 0) : at + 1]
    before = text[max(at - 2, 0) : at]
    if WITHIN_A_NUMBER.search(before + text[at : at + 2]) or SIGNED.search(f"{before}|{text[at : at + 1]}"):
        return True
    unspaced = any(unicodedata.name(letter, "").startswith(UNSPACED) for letter in around)
    # A vowel sign belongs to the letter before it
    return (
        len(around) == 2
        and all(letter.isalnum() or unicodedata.category(letter)[0] == "M" for letter in around)
        and not unspaced
    )
