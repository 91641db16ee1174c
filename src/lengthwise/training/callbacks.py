"""Callbacks of transformers' Trainer: write a step's losses, move the progress bar, tell methods which step it is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from lengthwise.common.files import append_text
from lengthwise.common.progress import ProgressCallback
from lengthwise.errors import require
from lengthwise.methods import weights
from lengthwise.training.adjustment import TrainingMethods
from lengthwise.training.directory import CHECKPOINT, TrainingDirectory, learnt_file

WRITTEN = ("loss", "cross_entropy", "misalignment", "grad_norm", "learning_rate")
# Lines where there is no terminal to draw a bar in
LINES = 20


class LossesCallback(TrainerCallback):  # type: ignore[misc]
    """Writes one line a step to losses.jsonl and moves the bar; for the first process only."""

    def __init__(self, directory: TrainingDirectory, tick: ProgressCallback) -> None:
        self.directory, self.tick = directory, tick

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.directory.forget_losses_after(state.global_step)
        self.tick(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        if "loss" not in logs:
            return
        line = {"step": state.global_step, **{name: float(logs[name]) for name in WRITTEN if name in logs}}
        append_text(self.directory.losses, json.dumps(line) + "\n")
        for name in ("loss", "grad_norm"):
            # A gradient breaks the weights at once, also those of the last step, whose loss nobody sees
            broken = f"the {name.replace('grad_norm', 'gradient')} of step {state.global_step} is {line.get(name)}"
            advice = "and no later one can be better; give a smaller --learning-rate and a new --out"
            require(math.isfinite(line.get(name, 0.0)), f"{broken}, {advice}")
        words = ", ".join(f"{name.replace('_', '-')} {line[name]:.4f}" for name in WRITTEN[:3] if name in line)
        is_told = state.global_step % max(1, state.max_steps // LINES) == 0 or state.global_step == state.max_steps
        self.tick(1, f"step {state.global_step} of {state.max_steps}: {words}" if is_told else None)


class MethodCallback(TrainerCallback):  # type: ignore[misc]
    """Tells a method that draws which step it is, and puts what it learns beside every checkpoint, where LoRA's saving would
    leave it out."""

    def __init__(self, methods: TrainingMethods) -> None:
        self.methods = methods

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.methods.stretched is not None:
            self.methods.stretched.step = state.global_step

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        learnt, learnt_name = self.methods.learnt, self.methods.learnt_name
        if learnt is not None and learnt_name is not None and state.is_world_process_zero:
            weights.save(learnt, Path(args.output_dir) / f"{CHECKPOINT}{state.global_step}" / learnt_file(learnt_name))
