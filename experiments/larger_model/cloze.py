"""Questions made of a document's own sentence: a name or a number is left out, and it is the answer.

Real questions are few; these teach the same reading on any passage. Half of them are only the words near the gap, in small
letters as people ask.
"""

from __future__ import annotations

import random
import re

from lengthwise.tasks.material.documents import Document, Question
from lengthwise.tasks.sample import sentences

# Neither begins its sentence: there every word has a capital
NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+(?: (?:of |the )?[A-Z][a-z]+){0,3}")
NUMBER = re.compile(r"(?<=[a-z,;] )\d[\d,]*\d|(?<=[a-z,;] )\d\b")
FEWEST, MOST = 6, 40  # words of a sentence
ENDS = ".!?\"')\u201d\u2019"
NEAR = 8  # words on each side of a gap


def question(randomness: random.Random, document: Document) -> Question | None:
    """None where no sentence has anything to ask for."""
    fit = [one for one in sentences(document.text) if FEWEST <= len(one.split()) <= MOST]
    randomness.shuffle(fit)
    for sentence in fit:
        numbers, names = list(NUMBER.finditer(sentence)), list(NAME.finditer(sentence))
        if numbers or names:
            found = randomness.choice(numbers or names if randomness.random() < 0.3 else names or numbers)
            what = "which number" if found in numbers else "what name"
            return Question(_gap(randomness, sentence, found, what), (found.group(),), document)
    return None


def _gap(randomness: random.Random, sentence: str, found: re.Match[str], what: str) -> str:
    before, after = sentence[: found.start()], sentence[found.end() :].rstrip(ENDS)
    if randomness.random() < 0.5:
        return f"{before}{what}{after}?"
    left, right = before.split(), after.split()
    near = [*left[len(left) - min(len(left), randomness.randint(3, NEAR)) :], what, *right[: randomness.randint(0, NEAR)]]
    return " ".join(near).lower().rstrip(",;:") + "?"
