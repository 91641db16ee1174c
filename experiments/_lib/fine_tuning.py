"""Fine-tuned models as experiments measure them: the weights a run of `lengthwise.train` ends with, and a reader."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import TrainerCallback

import lengthwise as lw
from lengthwise.evaluation.likelihood import token_nll
from lengthwise.models.anatomy import unwrapped
from lengthwise.training.adjustment import LEARNT

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Reader:
    """A model in evaluation, whose weights change from run to run, and texts it was not trained on.

    Perplexity at a length n is that of readings of n tokens, one after the other: every length scores the same tokens.
    """

    model: Any
    ids: Tensor  # [streams, longest + 1]
    lengths: Sequence[int]  # divisors of the longest

    def nll(self, method: str) -> list[list[float]]:
        """[lengths][streams]; a length is left empty where a stream's mean is not finite."""
        means = [self._means(method, length) for length in self.lengths]
        return [streams if all(map(math.isfinite, streams)) else [] for streams in means]

    def _means(self, method: str, length: int) -> list[float]:
        readings = self.ids.unfold(1, length + 1, length)  # [streams, readings, length + 1]
        nll = token_nll(self.model, readings.flatten(0, 1), method=method)
        means: list[float] = nll.view(len(self.ids), -1).double().mean(1).tolist()
        return means

    def misalignment(self, method: str, length: int, pairs: int) -> list[float | None]:
        """L_SCE and symmetric KL of two readings of at most `length` tokens; None where they are not finite."""
        text = self.ids[:, :-1].flatten()
        apart = lw.misalignment(self.model, text, length=length, pairs=pairs, method=method, show_progress=False)
        return [value if math.isfinite(value) else None for value in (apart.sce, apart.kl)]


@contextmanager
def trained(model: str, files: Sequence[str], folder: Path, **how: Any) -> Iterator[Weights]:
    """Trains one run and gives the weights it ends with; what is on the disk is removed afterwards, and what a killed run left
    before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        keeper = Keeper()
        lw.train(model, folder / "trained", data=list(files), callbacks=[keeper], show_progress=False, **how)
        yield keeper.weights
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Keeper(TrainerCallback):  # type: ignore[misc]
    """Copies the weights after the last step."""

    weights: Weights

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
        self.weights = merged_weights(unwrapped(model))


def merged_weights(model: Any) -> Weights:
    """Copies, by the names of the model without LoRA, which is merged in, and without what a method learns."""
    copies = {
        name.replace(".base_layer", ""): weight.detach().clone()
        for name, weight in model.state_dict().items()
        if ".lora_" not in name and not name.startswith(LEARNT)
    }
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight"):
            copies[f"{name}.weight"] += module.get_delta_weight("default").detach()
    return copies
