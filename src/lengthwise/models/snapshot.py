"""All that a model holds, and what of it has changed: extending a model has to leave everything as it was."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


def state_of(model: Any) -> dict[str, Any]:
    """All that extending a model may touch: weights by value, everything else by identity."""
    state: dict[str, Any] = {f"the weight {name}": value.clone() for name, value in model.state_dict().items()}
    for name, module in model.named_modules():
        place = name or "the model"
        state[f"an attribute of {place}"] = {key: id(value) for key, value in vars(module).items()}
        state[f"a hook of {place}"] = [list(module._forward_hooks), list(module._forward_pre_hooks)]
        if hasattr(module, "config"):
            state[f"the config of {place}"] = copy.deepcopy(vars(module.config))
    state["transformers"] = (list(ALL_ATTENTION_FUNCTIONS), list(ALL_MASK_ATTENTION_FUNCTIONS))
    return state


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What of a model's state is not what it was."""

    def same(one: Any, other: Any) -> bool:
        return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)

    changed = [name for name, value in before.items() if name not in after or not same(value, after[name])]
    return [*changed, *(name for name in after if name not in before)]
