"""Code completion: the next line of code, from the code before it.

    exact match = 1 where both lines have the same words, else 0
    edit similarity = 2 LCS / (letters of both lines)              LCS letters stand in both in the same order

Chi et al., Tables 6, 12 and 13. White space divides words, and no other difference is forgiven; what counts is the answer's
first line. Edit similarity is rapidfuzz's `fuzz.ratio` / 100, which is not difflib's ratio. The line to be completed does not
depend on the length: only the code before it grows, first that of its own file, then of others.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from lengthwise.errors import require
from lengthwise.tasks.material.case_files import Case, last_question, read_as
from lengthwise.tasks.material.code_files import CodeFile, shuffled, standard_library, take
from lengthwise.tasks.material.fit_length import by_last_letter, check_room, fit_to_length
from lengthwise.tasks.material.token_counts import token_count
from lengthwise.tasks.sample import Sample, draws
from lengthwise.tasks.scoring import first_line

ANSWER_TOKENS = 64
SHORTEST, LONGEST = 10, 60  # letters of a line to be completed
BEFORE = 20  # lines of its own file that stand before it at least
BUCKET = 1000  # the paper's bucket nk holds [1000 n, 1000 (n + 1)) tokens
COMMENT = ("#", "//", "/*", "*", "--", '"', "'")
CODE = re.compile(r"[=(\[{;]|:$|^(return|import|from|raise|yield|assert|del|package|use)\b")
__all__ = ["ANSWER_TOKENS", "BUCKET", "edit_similarity", "read", "samples", "score", "take"]


def samples(
    tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None, files: Sequence[CodeFile] | None = None
) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more, that end before a line of `files`.

    Without files of Python's standard library. There is no `depth`: what tells the line may stand anywhere.
    """
    sources = draws("code_completion", seed, n, depth)
    require(depth is None, f"code_completion has no depth, and {depth} was given: what tells the next line may stand anywhere")
    files = standard_library() if files is None else tuple(files)
    lines = _completable(files)
    require(
        bool(lines), f"no file has a line of code of {SHORTEST} to {LONGEST} letters behind {BEFORE} others; give more code"
    )
    made = []
    for randomness in sources:
        file, at = randomness.choice(lines)
        check_room(length, token_count(tokenizer, _prompt([_line_before(files[file], at)])))
        before = _backwards(files, file, at, randomness)
        fitted = fit_to_length(tokenizer, length, before, _prompt, glue="\n", cut=by_last_letter)
        target = files[file].lines[at].strip()
        made.append(Sample(fitted.prompt, target, fitted.tokens, None, last_question(fitted.prompt)))
    return made


def score(prediction: str, target: str) -> float:
    """Exact match."""
    return float(first_line(prediction).split() == target.split())


def edit_similarity(prediction: str, target: str) -> float:
    from rapidfuzz import fuzz

    return float(fuzz.ratio(first_line(prediction), target.strip())) / 100


def read(tokenizer: Any, path: Path) -> list[Sample]:
    """Read cases of LCC (`context` and `gt`), of LongBench's lcc (`context` and `answers`), or with `prompt` and `target`."""
    return read_as(_lcc, tokenizer, path)


def _prompt(backwards: list[str]) -> str:
    return "".join(f"{line}\n" for line in reversed(backwards))


def _line_before(file: CodeFile, at: int) -> str:
    """The last line before `at` that is not blank: a prompt shorter than it would ask for nothing."""
    return next((line for line in reversed(file.lines[:at]) if line), "")


def _backwards(files: Sequence[CodeFile], file: int, at: int, randomness: random.Random) -> Iterator[str]:
    """The lines before one, from the last to the first, then those of other files, without end.

    A file that is alone begins again, and never tells what comes after the line or the line itself.
    """
    before = CodeFile(files[file].name, files[file].lines[:at])
    others = shuffled([*files[:file], *files[file + 1 :]] or [before], randomness)
    yield from reversed(before.lines)
    yield from itertools.chain.from_iterable(("", *reversed(other.lines)) for other in others)


@lru_cache(maxsize=4)
def _completable(files: tuple[CodeFile, ...]) -> list[tuple[int, int]]:
    """(file, line) of all lines worth completing: long enough code, no comments and no text in quotes."""
    completable = []
    for number, file in enumerate(files):
        inside = False
        for at, line in enumerate(file.lines):
            # Python's texts of several lines
            quotes = line.count('"""') + line.count("'''")
            if at >= BEFORE and not inside and not quotes and _is_code(line.strip()):
                completable.append((number, at))
            inside ^= quotes % 2 == 1
    return completable


def _is_code(line: str) -> bool:
    return SHORTEST <= len(line) <= LONGEST and not line.startswith(COMMENT) and CODE.search(line) is not None


def _lcc(tokenizer: Any, case: Case) -> Sample:
    context = case.get("context", str, "the code before (or 'prompt', in a file of your own)")
    if "answers" in case.fields:
        answers = case.get("answers", list, "a list with the next line")
        require(len(answers) == 1, f"{case.place}: 'answers' should be a list with one line of code, not {str(answers)[:40]}")
        case = Case(case.place, {"gt": answers[0]})
    target = case.get("gt", str, "the next line (or 'target', in a file of your own)").strip()
    require(target != "", f"{case.place}: the line to be completed is blank")
    require("\n" not in target, f"{case.place}: one line is to be completed, not {len(target.splitlines())}")
    prompt = f"{context.rstrip()}\n"
    return Sample(prompt, target, token_count(tokenizer, prompt), None, last_question(prompt))
