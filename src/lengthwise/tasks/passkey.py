"""Passkey: a number stated twice, somewhere in prose, asked for at the end.

Scored by the first whole number of the answer (Mohtashami and Jaggi 2023; Chi et al., Table 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lengthwise.common.text import shipped_prose
from lengthwise.errors import require
from lengthwise.tasks.material.case_files import read
from lengthwise.tasks.material.fit_length import by_word, fit_to_length
from lengthwise.tasks.sample import Sample, draws, endless_from_anywhere, sentences
from lengthwise.tasks.scoring import is_first_integer as score

INTRODUCTION = "An important number is hidden in the text below. Find it and remember it; you will be asked for it."
QUESTION = "What is the pass key? The pass key is"
ANSWER_TOKENS = 16
__all__ = ["ANSWER_TOKENS", "INTRODUCTION", "QUESTION", "read", "samples", "score"]


def samples(
    tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None, filler: Sequence[str] | None = None
) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; the number stands at `depth`, or anywhere.

    `filler` are the sentences around it, in their order; without them the package's prose.
    """
    prose = sentences(shipped_prose()) if filler is None else [sentence for sentence in filler if sentence.strip()]
    require(bool(prose), "there are no sentences to hide the number in; give at least one")
    made = []
    for randomness in draws("passkey", seed, n, depth):
        key = randomness.randint(1, 50000)
        at = randomness.random() if depth is None else depth
        needle = f"The pass key is {key}. Remember it. {key} is the pass key."

        def prompt_of(around: list[str], needle: str = needle, at: float = at) -> str:
            cut = round(at * len(around))
            return " ".join([INTRODUCTION, *around[:cut], needle, *around[cut:], QUESTION])

        fitted = fit_to_length(tokenizer, length, endless_from_anywhere(prose, randomness), prompt_of, cut=by_word)
        made.append(Sample(fitted.prompt, str(key), fitted.tokens, at, QUESTION))
    return made
