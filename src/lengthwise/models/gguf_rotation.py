"""What a GGUF file says of its rotation, which transformers does not read: linear, YaRN's, LongRoPE's, Llama 3's.

Keys are those that llama.cpp reads (calibration/export/gguf_keys.py has them by rope type), and two that its converter writes
of a config's `attention_factor` and `mscale_all_dim`. What stays unread is told.
"""

from __future__ import annotations

import math
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy

from lengthwise.models.anatomy import FULL
from lengthwise.models.gguf_header import read_header

FACTORS = "rope_freqs.weight"
LONG_FACTORS = {f"rope_factors_{name}.weight": f"{name}_factor" for name in ("long", "short")}
TYPE, FACTOR, SHARPER, BEFORE = (f"rope.scaling.{key}" for key in ("type", "factor", "attn_factor", "original_context_length"))
WHOLE, OF_ALL = "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_log_multiplier"
BETAS = {f"rope.scaling.yarn_{name}": name for name in ("beta_fast", "beta_slow")}
LOW, HIGH = 1.0, 4.0  # Llama 3's factors of low and high frequencies; a file has what they make of its other two numbers
ORIGINAL = [2**power for power in range(4, 21)]


def rotate_as_stored(model: Any, path: Path) -> None:
    """Let the model rotate as the file says."""
    header = read_header(path, lambda key: ".rope." in key)
    keys = {key.partition(".")[2]: value for key, value in header.values.items()}
    kind, sharper = keys.get(TYPE, "none"), float(keys.get(SHARPER, 1.0))
    stack = model.get_decoder()
    rope = getattr(stack.config, "rope_parameters", None) or {}
    factors = _floats(path, *header.tensors[FACTORS]) if FACTORS in header.tensors else None
    if kind == "none" and sharper == 1 and factors is None:
        return
    # Gemma 3's layers with a window stay as they are
    own = rope.get(FULL, rope)
    several = {key: _floats(path, *header.tensors[name]) for name, key in LONG_FACTORS.items() if name in header.tensors}
    found = _parameters(own, keys, kind, sharper, factors, several) if "rope_theta" in own else None
    if found is None:
        what = f"{kind} scaling, an attention factor of {sharper:g}" + (f" and {FACTORS}" if factors is not None else "")
        warnings.warn(f"{path.name} has {what}, which no config can say; the model rotates without", stacklevel=2)
        return
    parameters = {**own, **found}
    stack.config.rope_parameters = {**rope, FULL: parameters} if FULL in rope else parameters
    stack.rotary_emb = type(stack.rotary_emb)(config=stack.config)


def _parameters(
    rope: dict[str, Any], keys: dict[str, Any], kind: str, sharper: float, factors: Any, several: dict[str, Any]
) -> dict[str, Any] | None:
    """Rope parameters of a config; None where there are none that say this."""
    factor = float(keys.get(FACTOR, 1.0))
    if factors is not None:
        return _llama3(factors, float(rope["rope_theta"])) if kind == "none" and sharper == 1 else None
    if kind == "linear" and sharper == 1:
        return {"rope_type": kind, "factor": factor}
    if kind == "yarn" and BEFORE in keys:
        betas = {name: float(keys[key]) for key, name in BETAS.items() if key in keys}
        log = 0.1 * math.log(factor)
        sharper *= float(keys.get(WHOLE, (1 + log) / (1 + keys.get(OF_ALL, 0.0) * log)))
        own = {"factor": factor, "attention_factor": sharper, "original_max_position_embeddings": int(keys[BEFORE])}
        return {"rope_type": kind, **own, **betas}
    if kind == "longrope" and len(several) == len(LONG_FACTORS) and BEFORE in keys:
        own = {"attention_factor": sharper, "original_max_position_embeddings": int(keys[BEFORE])}
        return {"rope_type": kind, **own, **{name: factors.tolist() for name, factors in several.items()}}
    return None


def _llama3(factors: Any, base: float) -> dict[str, Any] | None:
    """The parameters that make these factors."""
    longest, pairs = float(factors.max()), len(factors)
    lengths = 2 * math.pi * base ** (numpy.arange(pairs) / pairs)
    for original in ORIGINAL:
        smooth = ((original / lengths - LOW) / (HIGH - LOW)).clip(0, 1)
        if numpy.allclose(1 / ((1 - smooth) / longest + smooth), factors, rtol=1e-3):
            own = {"low_freq_factor": LOW, "high_freq_factor": HIGH, "original_max_position_embeddings": original}
            return {"rope_type": "llama3", "factor": longest, **own}
    return None


def _floats(path: Path, at: int, count: int) -> Any:
    with path.open("rb") as file:
        file.seek(at)
        return numpy.array(struct.unpack(f"<{count}f", file.read(4 * count)))
