"""The config.json of an evaluation: the model, settings that must not change, methods, tasks, and what produced the run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from lengthwise.common.text import shipped_prose
from lengthwise.evaluation.sweep.jobs import EvaluatedModel, Job
from lengthwise.evaluation.sweep.questions import Questions
from lengthwise.models.anatomy import Anatomy, unwrapped
from lengthwise.models.fingerprint import model_fingerprint, versions
from lengthwise.models.weights_digest import values_digest
from lengthwise.records.config import FORMAT, Config
from lengthwise.tasks import VERSION

VALUES_PER_TENSOR = 64  # of each parameter, in the digest of a model
# How keys of a config begin that tell where a model comes from and how it is run; the data type is a setting
ORIGIN_AND_USE = ("_", "architectures", "attn_implementation", "dtype", "transformers_version", "use_cache")


def run_config(anatomy: Anatomy, evaluated: EvaluatedModel, jobs: Sequence[Job], questions: Questions, device: str) -> Config:
    specs = {job.method.name: job.method.spec for job in jobs if job.method.spec}
    return {
        "format": FORMAT,
        "model": {**model_fingerprint(anatomy), "name": evaluated.name, "config": config_values(evaluated.model)},
        # Another value of one of these would make records that cannot stand beside the first ones
        "settings": {
            "seed": evaluated.seed,
            "dtype": dtype_of(evaluated.model),
            "train_length": evaluated.train_length,
            "batch_tokens": evaluated.batch_tokens,
            "tokenizer": tokenizer_digest(evaluated.tokenizer),
            "parameters": parameters_digest(evaluated.model),
            **({"chat": True} if evaluated.chat else {}),
        },
        "methods": {job.method.name: job.method.document for job in jobs},
        **({"specs": specs} if specs else {}),
        "reads": {job.method.name: job.method.reads for job in jobs},
        "tasks": questions.materials,
        **({"samples": VERSION} if questions.materials else {}),
        "data": questions.files,
        "given": questions.given,
        **({"code": questions.code} if questions.code else {}),
        "made_with": made_with(device),
    }


def made_with(device: str) -> dict[str, str]:
    """Versions of the packages, and the device, that produced a result."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") and torch.cuda.is_available() else device
    return {**versions(), "device": name}


def dtype_of(model: nn.Module) -> str:
    return str(unwrapped(model).dtype).removeprefix("torch.")


def config_values(model: nn.Module) -> dict[str, str]:
    """By key, the JSON of what a model's config says of how it computes: the same weights may be rotated otherwise."""
    values = _values(unwrapped(model).config.to_diff_dict())
    return {key: json.dumps(value, sort_keys=True, default=str) for key, value in values.items()}


def _values(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {str(key): _values(inner) for key, inner in value.items() if not str(key).startswith(ORIGIN_AND_USE)}


def tokenizer_digest(tokenizer: Any) -> str:
    """A short digest of how the tokenizer reads the beginning of the shipped prose."""
    ids = tokenizer(shipped_prose()[:4000], verbose=False).input_ids
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]


def parameters_digest(model: nn.Module) -> str:
    """A digest of a few values of every parameter; the fingerprint covers the extended stack's attention only."""
    return values_digest(unwrapped(model).named_parameters(), VALUES_PER_TENSOR)
