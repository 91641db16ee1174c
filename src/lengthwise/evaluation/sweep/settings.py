"""What a run directory keeps of the run itself: settings that must not change, and with what it was made."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn

from lengthwise.common.text import shipped_prose
from lengthwise.evaluation.sweep.cells import Subject
from lengthwise.models.anatomy import unwrapped
from lengthwise.models.fingerprint import values_digest, versions

VALUES_A_TENSOR = 64


def settings_of(subject: Subject) -> dict[str, Any]:
    """Another value of any of these would make records that cannot stand beside the first ones."""
    return {
        "seed": subject.seed,
        "dtype": dtype_of(subject.model),
        "train_length": subject.train_length,
        "batch_tokens": subject.batch_tokens,
        "tokenizer": tokenizer_digest(subject.tokenizer),
        "parameters": parameters_digest(subject.model),
    }


def made_with(device: str) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device.startswith("cuda") and torch.cuda.is_available() else device
    return {**versions(), "device": name}


def dtype_of(model: nn.Module) -> str:
    return str(unwrapped(model).dtype).removeprefix("torch.")


def tokenizer_digest(tokenizer: Any) -> str:
    ids = tokenizer(shipped_prose()[:4000], verbose=False).input_ids
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]


def parameters_digest(model: nn.Module) -> str:
    """Of a few values of every parameter: the fingerprint knows the extended stack's attention only, answers come from all."""
    return values_digest(unwrapped(model).named_parameters(), VALUES_A_TENSOR)
