"""Which model an alignment belongs to: a few numbers that change when its attention does, and not with its data type.

Values are rounded to bfloat16 before hashing, so that a checkpoint has one fingerprint whether it is loaded in float32 or in
bfloat16. Only the extended stack counts: an encoder loaded alone has the fingerprint it has inside its encoder-decoder.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import transformers

from lengthwise.errors import BadInput
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.load import EMBEDDED
from lengthwise.version import __version__

VALUES_A_TENSOR = 256


def fingerprint_of(anatomy: Anatomy) -> dict[str, Any]:
    digest = hashlib.sha256()
    for layer in anatomy.layers:
        for name, parameter in sorted(layer.named_parameters()):
            values = parameter.detach().reshape(-1)[:VALUES_A_TENSOR].to("cpu", torch.bfloat16)
            digest.update(name.encode())
            digest.update(values.view(torch.int16).numpy().tobytes())
    return {
        "family": anatomy.family,
        "name": _name(anatomy),
        "layers": len(anatomy.layers),
        "heads": anatomy.heads,
        "key_size": anatomy.key_size,
        "weights": digest.hexdigest()[:16],
    }


def versions() -> dict[str, str]:
    """Of what computed a number."""
    return {"lengthwise": __version__, "transformers": transformers.__version__, "torch": str(torch.__version__)}


def _name(anatomy: Anatomy) -> str:
    """As a user wrote it; where the package lies is nobody's business."""
    name = str(getattr(anatomy.stack.config, "_name_or_path", ""))
    return "embedded" if name == str(EMBEDDED) else name


def check_fingerprint(anatomy: Anatomy, expected: dict[str, Any]) -> None:
    """The name is a hint for people and is not compared."""
    found = fingerprint_of(anatomy)
    for key in ("family", "layers", "heads", "key_size", "weights"):
        if key in expected and expected[key] != found[key]:
            made_for = expected.get("name") or "another model"
            raise BadInput(
                f"this alignment was made for {made_for}: its {key} is {expected[key]}, this model's is {found[key]}; "
                "calibrate this model, or pass force=True (--force)"
            )
