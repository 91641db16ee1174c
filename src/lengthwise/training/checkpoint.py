"""A checkpoint that training goes on from: whatever is damaged in it is told in one line, with what to do.

transformers reads it without pickled code (weights_only), and raises whatever the file at fault makes a library raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_pt_utils import safe_globals

from lengthwise.errors import BadInput, is_out_of_memory
from lengthwise.models.load import reason_of

STATES = ("optimizer.pt", "scheduler.pt", "rng_state*.pth")


class BegunCallback(TrainerCallback):  # type: ignore[misc]
    """Notes that a step has begun: by then the whole checkpoint has been read."""

    begun = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.begun = True


@contextmanager
def readable(checkpoint: Path | None, trainer: Any) -> Iterator[None]:
    """Refuse a checkpoint that cannot be gone on from, by the name of the file at fault where it is known."""
    first = BegunCallback()
    trainer.add_callback(first)
    try:
        yield
    except Exception as error:
        if checkpoint is None or first.begun or isinstance(error, BadInput | OSError) or is_out_of_memory(error):
            raise
        problem = f"{_damaged_file(checkpoint) or checkpoint} is damaged: {reason_of(error)}"
        advice = f"remove {checkpoint}, and training goes on from the one before, or from the start"
        raise BadInput(f"{problem}; {advice}") from error


def _damaged_file(checkpoint: Path) -> Path | None:
    """The first file of a checkpoint's states that cannot be loaded; None where all can."""
    for path in (path for pattern in STATES for path in sorted(checkpoint.glob(pattern))):
        try:
            with safe_globals():
                torch.load(path, map_location="cpu", weights_only=True)
        except Exception:
            return path
    return None
