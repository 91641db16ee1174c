"""Try what could help on this model, and say what does.

    recipe = lengthwise.recommend(model, tokenizer, length=16000)
    with lengthwise.extend(model, recipe): model.generate(...)

1. Which tasks can the model do at its training length? Only these can show what is lost at length. Or a text is given, and how
   well it is told takes the place of questions.
2. Methods that this model allows are raced on the same questions at the length, and at the training length, where nothing may
   be lost; temperatures that must be calibrated first join as far as the time allows.
3. The winner, truncation and the plain model answer fresh questions, which alone are reported.
4. If there is time, what is recommended is asked at twice and four times the length: where does it stop working?

The answers of the race and those that confirm stand in two folders, `race` and `confirm`; started again with the same `out`, a
recommendation goes on with what is there.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.common.arguments import require_tokenizer, typed
from lengthwise.common.files import writing
from lengthwise.common.sequences import token_rows
from lengthwise.common.text import parse_lengths
from lengthwise.errors import require
from lengthwise.evaluation.recommendation.clock import Clock
from lengthwise.evaluation.recommendation.exam import LOOKING, Exam, QuestionExam
from lengthwise.evaluation.recommendation.rows import RowExam
from lengthwise.evaluation.recommendation.steps import FOREIGN, Recommendation
from lengthwise.evaluation.recommendation.text import TextExam
from lengthwise.methods.recipe import Recipe, recipe_at
from lengthwise.models.anatomy import anatomy_of, vocabulary
from lengthwise.models.patches import refuse_extended
from lengthwise.models.suitability import refuse_past_the_table, refuse_unreachable
from lengthwise.models.t5_head import warn_if_flattened
from lengthwise.tasks import without_groups


@typed
def recommend(
    model: nn.Module,
    tokenizer: Any,
    length: int,
    *,
    tasks: str | Sequence[str] = (),
    data: str | Path | None = None,
    text: str | None = None,
    input_ids: Any = None,
    minutes: float = 10.0,
    seed: int = 0,
    out: str | Path | None = None,
    train_length: int | None = None,
    batch_tokens: int | None = None,
    name: str = "",
    show_progress: bool = True,
) -> Recipe:
    """What to use at `length`, within so many minutes; `extend`, `evaluate` and `reach` take the recipe as a method.

    It is tried on `tasks`, by default on those of four that the model can do at its training length, or on your own questions:
    `data`, a file of cases for one task, half of which choose and half of which confirm. With `text` it is tried on how well
    what follows in that text is told, with `input_ids` (a tensor of [sequences, tokens], lists or a dataset) on what follows in
    these: then `tokenizer` may be None. `out` is a folder for the records, the alignments and `recipe.json`.
    """
    refuse_extended(model, "recommend")
    tasks = tuple(without_groups(tasks))
    anatomy = anatomy_of(model, train_length)
    refuse_unreachable(model, anatomy)
    warn_if_flattened(model)
    trained, (length,) = anatomy.train_length, parse_lengths(length)
    within = f"length {length} is within the training length {trained}: the model reads that as it is"
    require(length > trained, f"{within}; give a larger --length, or the right --train-length")
    refuse_past_the_table(anatomy, length)
    require(0 < minutes < math.inf, f"minutes must be above 0 and finite, not {minutes:g}")
    sources = sum((text is not None, bool(tasks or data), input_ids is not None))
    require(sources <= 1, "give a text (--text) or questions (--task, --data) or input_ids, one of them")
    require(tokenizer is not None or input_ids is not None, "without a tokenizer nothing can be asked; give input_ids")
    if input_ids is None:
        require_tokenizer(tokenizer)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out)
        written = folder / "recipe.json"
        with writing(written):
            require(not written.exists() or recipe_at(written) is not None, FOREIGN.format(path=written))
        trial = (model, tokenizer, anatomy, length, seed, folder, show_progress)
        clock = Clock(60 * minutes)
        exam: Exam = QuestionExam(*trial, tasks, data, batch_tokens, name, clock.end(LOOKING * trained / length))
        if input_ids is not None:
            exam = RowExam(*trial, "", tuple(token_rows(input_ids, vocabulary(model))))
        elif text is not None:
            exam = TextExam(*trial, text)
        recipe = Recommendation(exam, clock).run()
    if out is not None:
        recipe.save(written)
    return recipe
