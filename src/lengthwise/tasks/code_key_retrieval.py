"""Code key retrieval: files of code, among them a function that returns a number from 1 to 100; the number is asked for.

Chi et al., section 5.4, after Roziere et al. (2023); wording and code are ours. Scored by the first whole number of the answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from lengthwise.tasks.material.case_files import read
from lengthwise.tasks.material.code_files import CodeFile, shuffled, standard_library, take
from lengthwise.tasks.material.fit_length import by_letter, fit_to_length
from lengthwise.tasks.sample import Sample, draws
from lengthwise.tasks.scoring import is_first_integer as score

NAME = "pass_key"
INTRODUCTION = f"# Remember the number that {NAME}() returns."
FUNCTION = ("", f"def {NAME}():", "    return {key}", "", "")
QUESTION = f"assert {NAME}() =="
ANSWER_TOKENS = 16
NEAR = 0.05  # share of the lines by which the function may leave its depth, to stand between others
__all__ = ["ANSWER_TOKENS", "QUESTION", "read", "samples", "score", "take"]


def samples(
    tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None, files: Sequence[CodeFile] | None = None
) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; the function stands near `depth`, or anywhere.

    `files` are the code around it, by default Python's standard library.
    """
    files = standard_library() if files is None else files
    made = []
    for randomness in draws("code_key_retrieval", seed, n, depth):
        key = str(randomness.randint(1, 100))
        at = randomness.random() if depth is None else depth

        def prompt_of(code: list[str], key: str = key, at: float = at) -> str:
            cut = _place(code, at)
            function = [line.format(key=key) for line in FUNCTION]
            return "\n".join([INTRODUCTION, *code[:cut], *function, *code[cut:], QUESTION])

        fitted = fit_to_length(tokenizer, length, _code(files, randomness), prompt_of, glue="\n", cut=by_letter)
        code = fitted.pieces
        where = _place(code, at) / len(code) if code else at
        made.append(Sample(fitted.prompt, key, fitted.tokens, where, QUESTION))
    return made


def _code(files: Sequence[CodeFile], randomness: random.Random) -> Iterator[str]:
    for file in shuffled(files, randomness):
        yield from (line for line in file.lines if NAME not in line)
        yield ""


def _place(code: Sequence[str], at: float) -> int:
    """The line before which the function stands: one that begins something new, if there is one near."""
    wanted = round(at * len(code))
    near = int(NEAR * len(code))
    around = range(max(1, wanted - near), min(len(code), wanted + near + 1))
    begins = [k for k in around if code[k][:1].strip() and not code[k - 1].strip()]
    nearest = min([0, len(code), *begins], key=lambda k: abs(k - wanted))
    return nearest if abs(nearest - wanted) <= near else wanted
