"""Which model an alignment belongs to: a few numbers that change when its attention does, and not with its data type.

Values are rounded to bfloat16 before hashing, so that a checkpoint has one fingerprint whether it is loaded in float32 or in
bfloat16; and to float16 beside that, because what float16 has rounded once rounds otherwise to bfloat16. Only the extended
stack counts: an encoder loaded alone has the fingerprint it has inside its encoder-decoder.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
import transformers

from lengthwise.errors import BadInput
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.load import EMBEDDED
from lengthwise.models.weights_digest import VALUES_A_TENSOR, values_digest
from lengthwise.records.config import another_model
from lengthwise.version import __version__

HALF = "weights_in_float16"


def model_fingerprint(anatomy: Anatomy) -> dict[str, Any]:
    parameters = [*chain.from_iterable(sorted(layer.named_parameters()) for layer in anatomy.layers)]
    name = str(getattr(anatomy.stack.config, "_name_or_path", ""))
    return {
        "family": anatomy.family,
        # As a user wrote it: not the directory of the package
        "name": "embedded" if name == str(EMBEDDED) else name,
        "layers": len(anatomy.layers),
        "heads": anatomy.heads,
        "key_size": anatomy.key_size,
        "weights": values_digest(parameters, VALUES_A_TENSOR),
        HALF: values_digest(parameters, VALUES_A_TENSOR, torch.float16),
    }


def versions() -> dict[str, str]:
    """Versions of the packages that produced a result."""
    return {"lengthwise": __version__, "transformers": transformers.__version__, "torch": str(torch.__version__)}


def check_fingerprint(anatomy: Anatomy, expected: dict[str, Any], what: str, instead: str) -> None:
    """Raise where the model is not the one `expected` describes; what it leaves out is not compared.

    `what` was made for that model, and `instead` is what to do for this one.
    """
    actual = model_fingerprint(anatomy)
    if actual[HALF] == expected.get(HALF):
        expected = {**expected, "weights": actual["weights"]}
    if other := another_model({**actual, **expected}, actual):
        made_for = expected.get("name") or "another model"
        force = "pass force=True (--force of evaluate, reach, bake and export)"
        raise BadInput(f"this {what} was made for {made_for}: {other}; {instead}, or {force}")
