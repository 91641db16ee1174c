"""Trains one run with `lengthwise.train`, and keeps what the model was after some of its steps.

The learning rate is constant after the warm-up, so that a run of 50 steps is the beginning of one of 200: one run gives all
rows of a table. Weights are copied where they are; LoRA's are merged into the copy, as the saved model has them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import TrainerCallback

import lengthwise as lw
from experiments.output_alignment.fine_tuning_grid import Run
from lengthwise.methods import weights
from lengthwise.models.anatomy import unwrapped
from lengthwise.training.adjustment import LEARNT, spec_with

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Recipe:
    """What all runs share; a row has L tokens and the largest e more, and is read twice."""

    model: str
    train_length: int  # the model's own
    steps: int
    batch: int  # rows of a step at that length; fewer at longer ones, for as many tokens
    dtype: str
    device: str | None

    def options(self, run: Run, rate: float) -> dict[str, Any]:
        one = run.setting
        return {
            "adjustment": one.adjustment,
            "alpha": run.alpha,
            "sampling": one.sampling,
            "compare": one.compare,
            "train_length": one.factor * self.train_length,
            "steps": self.steps,
            "batch": max(1, self.batch // one.factor),
            "learning_rate": rate,
            "warmup": warmup(self.steps),
            # The same on machines with and without bitsandbytes
            "quantise": False if one.adjustment.startswith("longqlora") else None,
            "dtype": self.dtype,
            "device": self.device,
            "seed": run.seed,
            # A run takes less time than going on with it would save
            "save_every": self.steps + 1,
        }


def warmup(steps: int) -> int:
    return steps // 10


@dataclass(frozen=True)
class Snapshot:
    """The model after so many steps."""

    steps: int
    weights: Weights  # as the model itself names them
    method: str  # to use it with


def trained(
    run: Run,
    recipe: Recipe,
    rate: float,
    files: Sequence[str],
    folder: Path,
    at: Collection[int],
    use: Callable[[list[Snapshot]], None],
) -> None:
    """`use` is given the snapshots; what is on the disk is removed after it."""
    # Of a run that was killed
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        keeper = Keeper(at, folder)
        found = lw.train(
            recipe.model,
            folder / "trained",
            data=list(files),
            callbacks=[keeper],
            show_progress=False,
            **recipe.options(run, rate),
        )
        use([Snapshot(steps, kept, keeper.method(steps, found.method)) for steps, kept in keeper.kept.items()])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Keeper(TrainerCallback):  # type: ignore[misc]
    """Copies the weights after the steps asked for; 0 is before the first."""

    def __init__(self, at: Collection[int], folder: Path) -> None:
        self.at, self.folder = at, folder
        self.kept: dict[int, Weights] = {}
        self.learnt: dict[int, Path] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
        self._keep(state.global_step, model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
        self._keep(state.global_step, model)

    def method(self, steps: int, last: str) -> str:
        """`last` is the spec of the trained model; what CLEX has learnt differs from step to step."""
        return spec_with(last, self.learnt[steps]) if steps in self.learnt else last

    def _keep(self, steps: int, model: Any) -> None:
        if steps not in self.at:
            return
        inner = unwrapped(model)
        self.kept[steps] = merged_weights(inner)
        if (learnt := getattr(inner, LEARNT, None)) is not None:
            self.learnt[steps] = self.folder / f"clex-{steps}.safetensors"
            weights.save(learnt, self.learnt[steps])


def merged_weights(model: Any) -> Weights:
    """Copies, by the names of the model without LoRA and without what a method learns."""
    found = {
        name.replace(".base_layer", ""): weight.detach().clone()
        for name, weight in model.state_dict().items()
        if ".lora_" not in name and not name.startswith(LEARNT)
    }
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight"):
            found[f"{name}.weight"] += module.get_delta_weight("default").detach()
    return found
