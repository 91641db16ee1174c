"""All that extending a model touches, and an alignment to extend it with."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import lengthwise as lw
from tests.conftest import (
    TRAIN_LENGTH,
)

LONG = 4 * TRAIN_LENGTH


def alignment(model: Any, tau: Any = 0.6, scope: str = "model") -> lw.Alignment:
    from lengthwise.methods.temperature.aligned import Calibrated

    return lw.Alignment("pmax", scope, TRAIN_LENGTH, 0.5, (Calibrated(LONG, tau, 0.5, 3),))


def snapshot(model: Any) -> list[Any]:
    """Everything that installing touches, by identity where it is an object."""
    rows: list[Any] = []
    for name, module in model.named_modules():
        rows.append((name, {k: id(v) for k, v in vars(module).items() if not k.startswith("_forward")}))
        rows.append((name, list(module._forward_hooks), list(module._forward_pre_hooks)))
        if hasattr(module, "config"):
            rows.append((name, copy.deepcopy(vars(module.config))))
    rows.append({k: v.clone() for k, v in model.state_dict().items()})
    rows.append((list(ALL_ATTENTION_FUNCTIONS), list(ALL_MASK_ATTENTION_FUNCTIONS)))
    return rows


def assert_same(before: list[Any], after: list[Any]) -> None:
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        if isinstance(one, dict):
            assert all(torch.equal(one[key], other[key]) for key in one)
        else:
            assert one == other
