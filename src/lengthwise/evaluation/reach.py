"""How far a model reaches: the longest length at which it still does a task.

Lengths are doubled from the training length on until the mean score falls below the threshold, then bisected to within 6 %.
That takes for granted that the score falls with length: a model that fails at one length and works again at a longer one is
given the shorter reach. Every length tried is a cell of an ordinary evaluation and can be resumed as one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.common.arguments import require_tokenizer, typed
from lengthwise.errors import NoRoom, require
from lengthwise.evaluation.evaluate import evaluate
from lengthwise.evaluation.sweep.cells import check_methods, check_truncation
from lengthwise.evaluation.sweep.chat import ChatTokenizer
from lengthwise.evaluation.sweep.named_methods import NamedMethod, named_methods
from lengthwise.evaluation.sweep.questions import Questions
from lengthwise.methods.spec import NONE
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.patches import refuse_extended
from lengthwise.records import Cell, summarise
from lengthwise.tasks import Task, without_groups

STEP = 32  # lengths tried by halving or bisection are multiples of this
PRECISION = 0.06
Works = Callable[[int], bool]  # whether the model does the task at a length


@dataclass(frozen=True)
class Reach:
    """How far one method carries a model in one task."""

    method: str  # as its records call it
    task: str  # name of the task
    length: int | None  # longest length that works; None when no length tried does
    low: int | None  # longest length tried whose 95 % interval lies wholly at or above the threshold
    high: int | None  # longest length tried whose 95 % interval still touches the threshold
    score: float | None  # mean score at `length`
    next_length: int | None  # shortest length tried above it, which fails; None when none does
    next_score: float | None  # mean score there
    train_length: int  # where the search began
    shortest: int  # shortest length tried

    @property
    def says(self) -> str:
        """The reach in words, for tables."""
        if self.length is None:
            return f"not even at {self.shortest:,}"
        if self.next_length is None:
            return f">= {self.length:,}"
        return f"{self.length:,}" + (f" (not even at {self.train_length:,})" if self.length < self.train_length else "")


@typed
def reach(
    model: nn.Module,
    tokenizer: Any,
    methods: str | Iterable[object] | Mapping[str, object] = (),
    tasks: str | Sequence[str] | Mapping[str, Task] = ("passkey",),
    *,
    threshold: float = 0.85,
    longest: int = 16384,
    samples: int = 24,
    seed: int = 0,
    out: str | Path | None = None,
    train_length: int | None = None,
    batch_tokens: int | None = None,
    name: str = "",
    chat: bool = False,
    force: bool = False,
    show_progress: bool = True,
) -> list[Reach]:
    """Find, for `none` and each given method, the longest length at which each task scores `threshold` or more."""
    require(0 < threshold <= 1, f"threshold is a mean score above 0 and at most 1, not {threshold}")
    refuse_extended(model, "reach")
    require_tokenizer(tokenizer)
    anatomy = anatomy_of(model, train_length)
    trained = anatomy.train_length
    require(longest >= trained, f"longest ({longest}) is below the training length {trained}, where the search begins")
    compared = _with_plain_model(methods, anatomy.facts)
    check_methods(model, compared, train_length, force)
    asked = tasks if isinstance(tasks, Mapping) else without_groups(tasks)
    asking = ChatTokenizer(tokenizer) if chat else tokenizer
    questions = Questions(asking, asked, [trained], samples, seed)
    check_truncation(model, asking, trained, questions.jobs(compared, sharpness=False), questions.example)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out

        def score_at(method: NamedMethod, task: str, length: int) -> Cell:
            records = evaluate(
                model,
                tokenizer,
                {method.name: method},
                {task: asked[task]} if isinstance(asked, Mapping) else [task],
                [length],
                samples,
                seed,
                folder,
                train_length=train_length,
                batch_tokens=batch_tokens,
                name=name,
                chat=chat,
                force=force,
                sharpness=False,
                show_progress=show_progress,
            )
            return summarise(records)[0]

        return [
            _reach(method.name, task, threshold, trained, longest, partial(score_at, method, task))
            for task in dict.fromkeys(asked)
            for method in compared
        ]


def search(works: Works, start: int, longest: int) -> tuple[int | None, int | None]:
    """The longest length that works and the shortest that fails, None where there is none.

    Takes for granted that what works at a length works below it.
    """
    good, bad = _double(works, start, longest) if works(start) else _halve(works, start)
    return (good, bad) if good is None or bad is None else _bisect(works, good, bad)


def _double(works: Works, good: int, longest: int) -> tuple[int, int | None]:
    """Doubles a length that works until one fails."""
    while good < longest:
        step = min(2 * good, longest)
        if not works(step):
            return good, step
        good = step
    return good, None


def _halve(works: Works, bad: int) -> tuple[int | None, int]:
    """Halves a length that fails until one works, or until no question has room."""
    while (step := _rounded(bad / 2)) < bad:
        try:
            if works(step):
                return step, bad
        except NoRoom:
            break
        bad = step
    return None, bad


def _bisect(works: Works, good: int, bad: int) -> tuple[int, int]:
    """Narrows the gap between a length that works and one that fails, down to the precision."""
    while bad - good > max(STEP, PRECISION * good):
        middle = _rounded((good + bad) / 2)
        if not good < middle < bad:
            break
        good, bad = (middle, bad) if works(middle) else (good, middle)
    return good, bad


def _reach(method: str, task: str, threshold: float, start: int, longest: int, score_at: Callable[[int], Cell]) -> Reach:
    cells: dict[int, Cell] = {}

    def works(length: int) -> bool:
        cells[length] = score_at(length)
        return cells[length].mean >= threshold

    good, bad = search(works, start, longest)
    return Reach(
        method=method,
        task=task,
        length=good,
        low=max((length for length, cell in cells.items() if cell.low >= threshold), default=None),
        high=max((length for length, cell in cells.items() if cell.high >= threshold), default=None),
        score=None if good is None else cells[good].mean,
        next_length=bad,
        next_score=None if bad is None else cells[bad].mean,
        train_length=start,
        shortest=min(cells),
    )


def _with_plain_model(methods: str | Iterable[object] | Mapping[str, object], facts: Mapping[str, object]) -> list[NamedMethod]:
    """The methods by their names, with the plain model (`none`) first."""
    if isinstance(methods, Mapping):
        return named_methods({NONE: NONE} | dict(methods), facts)
    return named_methods([NONE, methods] if isinstance(methods, str) else [NONE, *methods], facts)


def _rounded(length: float) -> int:
    return max(1, round(length / STEP)) * STEP
