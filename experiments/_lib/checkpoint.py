"""The checkpoint of a training: weights, optimizer, step and settings, in one file that appears whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from lengthwise.errors import BadInput

NAME = "checkpoint.pt"


def save(out: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any]) -> None:
    """After `step` steps, in place of the one before."""
    out.mkdir(parents=True, exist_ok=True)
    fresh = out / f"{NAME}.unfinished"
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "settings": settings}
    torch.save(state, fresh)
    fresh.replace(out / NAME)


def restore(out: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any]) -> int:
    """Puts the checkpoint's values into both; returns the steps done, 0 where there is no checkpoint."""
    if not (out / NAME).exists():
        return 0
    # Plain values and tensors only: a file from elsewhere can run no code
    state = torch.load(out / NAME, map_location="cpu", weights_only=True)
    before = state["settings"]
    if differing := sorted(key for key in settings if settings[key] != before.get(key)):
        pairs = ", ".join(f"{key} was {before.get(key)}, now {settings[key]}" for key in differing)
        raise BadInput(f"{out} holds a run with other settings ({pairs}); resume with the old ones or give another --out")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
