"""An alignment to extend a model with, and a length past its own."""

from __future__ import annotations

from typing import Any

import lengthwise as lw
from tests.conftest import (
    TRAIN_LENGTH,
)

LONG = 4 * TRAIN_LENGTH


def alignment(model: Any, tau: Any = 0.6, scope: str = "model") -> lw.Alignment:
    from lengthwise.methods.temperature.aligned import Calibrated

    return lw.Alignment("pmax", scope, TRAIN_LENGTH, 0.5, (Calibrated(LONG, tau, 0.5, 3),))
