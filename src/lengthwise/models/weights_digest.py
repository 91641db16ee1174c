"""A hash of a few values of every weight: it tells whether weights are the same, whatever data type they are held in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from lengthwise.errors import require

VALUES_A_TENSOR = 256


def values_digest(named: Iterable[tuple[str, Tensor]], first: int, dtype: torch.dtype = torch.bfloat16) -> str:
    """A hash of the first values of every parameter, as numbers of two bytes."""
    digest = hashlib.sha256()
    for name, parameter in named:
        require(not parameter.is_meta, "weights are offloaded and cannot be read; load the model without device_map")
        values = parameter.detach().reshape(-1)[:first].to("cpu", dtype)
        digest.update(name.encode())
        digest.update(values.view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:16]


def digests(module: nn.Module) -> frozenset[str]:
    """In both types of 16 bits: a model that was rounded to one of them keeps that one."""
    named = sorted(module.named_parameters())
    return frozenset(values_digest(named, VALUES_A_TENSOR, dtype) for dtype in (torch.bfloat16, torch.float16))
