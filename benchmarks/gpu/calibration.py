"""What a calibration of a whole encoder takes, from text to temperatures."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import lengthwise
from benchmarks.gpu.encoder import built
from benchmarks.gpu.implementations import Setting
from benchmarks.gpu.results import Results
from benchmarks.gpu.sizes import SHAPES
from benchmarks.gpu.timing import free, peak, repeated

SCOPES = ("model", "layer")
PATIENCE = 4.0  # seconds: a calibration that takes longer is run once


def calibration(name: str, length: int, scope: str, setting: Setting, results: Results) -> None:
    """Measure a calibration: one record, in seconds a sequence."""
    model, text = built(name, setting.device, setting.dtype), random_text(length, SHAPES[name].words)
    forwards = 0

    def work() -> None:
        nonlocal forwards
        alignment = lengthwise.calibrate(model, numbers, length, scope=scope, text=text, show_progress=False)
        forwards = alignment.temperatures[0].forwards

    with results.attempt("calibration", "lengthwise", name, length, scope=scope):
        timed, extra = peak(lambda: repeated(work, setting.device, PATIENCE), setting.device)
        more = {"scope": scope, "forwards": forwards, "spread": timed.spread, "rounds": timed.rounds}
        results.add("calibration", "lengthwise", name, length, seconds=timed.seconds, extra_gb=extra, **more)
    free(setting.device)


def random_text(length: int, words: int) -> str:
    """Twice the length in hexadecimal numbers, each a token: of words that come again and again none could be attended to."""
    chance = random.Random(0)
    return " ".join(f"{chance.randrange(3, words):x}" for _ in range(2 * length))


def numbers(text: str, **_: Any) -> SimpleNamespace:
    """A tokenizer for such texts."""
    return SimpleNamespace(input_ids=[int(word, 16) for word in text.split()])
