"""What follows from a choice: how it does at still greater lengths, and the memory it takes."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from statistics import fmean

import torch

from lengthwise.calibration.measure import run_stack
from lengthwise.common.progress import TimeIsUp, time_limit
from lengthwise.errors import BadInput, is_out_of_memory
from lengthwise.evaluation.recommendation.clock import Clock
from lengthwise.evaluation.recommendation.exam import CONFIRM, FRESH, USABLE, Exam
from lengthwise.evaluation.recommendation.measure import Scored
from lengthwise.methods.recipe import Part
from lengthwise.models.extend import extend
from lengthwise.models.masks import forget_masks

TIMES = (2, 4)  # multiples of the length that are asked as well
STILL = 0.8  # least share of the score at the length with which a method still works


def at_longer(
    exam: Exam, name: str, parts: Sequence[Part] | str, score: float, seconds: float, clock: Clock
) -> list[Sequence[Scored]]:
    """Answers at twice the length, and at four times if it still works there; as far as time, memory and the model allow.

    `score` is the mean at the length, and `seconds` the time of one sample of every task there.
    """
    answers: list[Sequence[Scored]] = []
    if not exam.can_be_longer or score < USABLE:
        return answers
    for times in TIMES:
        # Attention is quadratic in the length
        if times**2 * FRESH[0] * seconds > clock.left():
            break
        try:
            with warnings.catch_warnings(), time_limit(clock.left()):
                # An alignment is held beyond its last length, and is asked about just that
                warnings.simplefilter("ignore")
                answers.append(exam.answers(CONFIRM, {name: parts}, [times * exam.length], FRESH[0]))
        except TimeIsUp:
            break
        except Exception as error:
            if not is_out_of_memory(error) and not isinstance(error, BadInput):
                raise
            break
        if not still_works(answers[-1], score):
            break
    return answers


def still_works(answers: Sequence[Scored], score: float) -> bool:
    return fmean(answer.score for answer in answers) >= STILL * score


def peak_memory(exam: Exam, parts: Sequence[Part] | str, tokens: int) -> int | None:
    """Most bytes in use at once, beside the weights, while reading so many tokens; None on devices that do not count them."""
    device = next(exam.model.parameters()).device
    # Which tokens they are makes no difference
    ids = torch.ones((1, tokens), dtype=torch.long)
    with extend(exam.model, parts, train_length=exam.anatomy.train_length):
        read = partial(run_stack, exam.anatomy, ids)
        if device.type == "cuda":
            return _peak_on_gpu(device, read)
        return _peak_on_cpu(read) if device.type == "cpu" else None


def _peak_on_gpu(device: torch.device, read: Callable[[], object]) -> int:
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    read()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _peak_on_cpu(read: Callable[[], object]) -> int:
    """The highest running sum of all bytes that PyTorch's profiler sees allocated and freed."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it tells standard error of its beginning and end
    # What was made before and goes meanwhile would be counted as given back here, and PyTorch would complain
    forget_masks()
    gc.collect()
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.autograd.profiler.profile(profile_memory=True) as profile:
            read()
    finally:
        if collects:
            gc.enable()
    events = (event for event in profile.kineto_results.events() if event.name() == "[memory]")
    taken: list[int] = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(accumulate(taken, initial=0))
