"""Checkpoints without pickles: weights and Adam's averages as safetensors, the step and the settings as JSON.

A checkpoint is a folder that appears whole, by a rename, or not at all; the one before it is removed afterwards.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from experiments._lib.scaled_queries import weights
from lengthwise.errors import BadInput

PREFIX = "step-"


def save(out: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any]) -> None:
    """After `step` steps."""
    folder = out / f"{PREFIX}{step:08d}"
    if folder.exists():
        return
    fresh = out / f"unfinished-{step:08d}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    save_file({name: weight.contiguous().cpu() for name, weight in weights(model).items()}, fresh / "model.safetensors")
    save_file(_averages(model, optimizer), fresh / "optimizer.safetensors")
    (fresh / "state.json").write_text(json.dumps({"step": step, "settings": settings}, indent=2) + "\n")
    fresh.rename(folder)
    for old in _folders(out)[:-1]:
        shutil.rmtree(old)


def restore(out: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any]) -> int:
    """Puts the latest checkpoint's values into both; returns the steps done, 0 where there is no checkpoint."""
    folders = _folders(out)
    if not folders:
        return 0
    state = json.loads((folders[-1] / "state.json").read_text())
    differing = sorted(key for key in settings if settings[key] != state["settings"].get(key))
    if differing:
        pairs = ", ".join(f"{key} was {state['settings'].get(key)}, now {settings[key]}" for key in differing)
        raise BadInput(f"{out} holds a run with other settings ({pairs}); resume with the old ones or give another --out")
    saved = load_file(folders[-1] / "model.safetensors")
    with torch.no_grad():
        for name, weight in weights(model).items():
            weight.copy_(saved[name])
    optimizer.load_state_dict(_state(optimizer, model, load_file(folders[-1] / "optimizer.safetensors")))
    return int(state["step"])


def _folders(out: Path) -> list[Path]:
    return sorted(out.glob(f"{PREFIX}*"))


def _averages(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        f"{names[id(parameter)]}/{key}": torch.as_tensor(value).contiguous().cpu()
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def _state(optimizer: torch.optim.Optimizer, model: nn.Module, averages: dict[str, Tensor]) -> dict[str, Any]:
    """In the form `load_state_dict` takes: parameters by their number, in the order of the groups."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    order = [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
    by_name: dict[str, dict[str, Tensor]] = {}
    for key, value in averages.items():
        name, _, part = key.rpartition("/")
        by_name.setdefault(name, {})[part] = value
    return {
        "state": {at: by_name[name] for at, name in enumerate(order)},
        "param_groups": optimizer.state_dict()["param_groups"],
    }
