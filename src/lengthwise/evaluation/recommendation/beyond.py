"""What follows from a choice: how it does at still greater lengths, and the memory it takes."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import torch

from lengthwise.calibration.measure import run_stack
from lengthwise.errors import BadInput, is_out_of_memory
from lengthwise.evaluation.recommendation.asked import CONFIRM, FRESH, KNOWN, Asked
from lengthwise.evaluation.recommendation.clock import Clock
from lengthwise.evaluation.recommendation.measure import Scored
from lengthwise.methods.recipe import Part
from lengthwise.models.extend import extend

TIMES = (2, 4)  # the length
STILL = 0.8  # least share of the score at the length with which a method still works


def at_longer(
    asked: Asked, name: str, parts: Sequence[Part] | str, score: float, seconds: float, clock: Clock
) -> list[Sequence[Scored]]:
    """Answers at twice the length, and at four times if it still works there; as far as time, memory and the model allow.

    `score` is the mean at the length, and `seconds` the time of one sample of every task there.
    """
    answers: list[Sequence[Scored]] = []
    if not asked.can_be_longer or score < KNOWN:
        return answers
    for times in TIMES:
        # Attention is quadratic in the length
        if times**2 * FRESH[0] * seconds > clock.left():
            break
        try:
            with warnings.catch_warnings():
                # An alignment is held beyond its last length, and is asked about just that
                warnings.simplefilter("ignore")
                answers.append(asked.answers(CONFIRM, {name: parts}, [times * asked.length], FRESH[0]))
        except Exception as error:
            if not is_out_of_memory(error) and not isinstance(error, BadInput):
                raise
            break
        if not still_works(answers[-1], score):
            break
    return answers


def still_works(answers: Sequence[Scored], score: float) -> bool:
    return fmean(answer.score for answer in answers) >= STILL * score


def peak_memory(asked: Asked, parts: Sequence[Part] | str, tokens: int) -> int | None:
    """Bytes that reading so many tokens takes beside the weights; None where the system does not count them."""
    device = next(asked.model.parameters()).device
    # Which tokens they are makes no difference
    ids = torch.ones((1, tokens), dtype=torch.long)
    with extend(asked.model, parts, train_length=asked.anatomy.train_length):
        read = partial(run_stack, asked.anatomy, ids)
        return _peak_on_gpu(device, read) if device.type == "cuda" else _peak_on_linux(read)


def _peak_on_gpu(device: torch.device, read: Callable[[], object]) -> int:
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    read()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _peak_on_linux(read: Callable[[], object]) -> int | None:
    """The process's resident memory at its highest, after what is free was given back and the mark was set anew."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = _resident("VmRSS")
        read()
        return max(0, _resident("VmHWM") - before)
    except (OSError, AttributeError):
        return None


def _resident(name: str) -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[name].removesuffix("kB"))
