"""What llama.cpp is told of a model's rotation, in the keys of a GGUF file.

| rope type of a config | keys                                             | architectures          |
|-----------------------|--------------------------------------------------|------------------------|
| default               | another base                                     | all                    |
| linear, yarn          | type, factor, original length, attention factor  | all                    |
| longrope              | a tensor of factors, for long and short contexts | llama                  |
| llama3                | a tensor of factors                              | llama                  |
| dynamic               | not known to llama.cpp                           |                        |

llama.cpp multiplies cos and sin by `attn_factor` whatever the type, and under yarn by 1 + 0.1 ln s besides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy

from lengthwise.calibration.export.plan import Plan
from lengthwise.errors import BadInput

# Architectures of llama.cpp by the family of transformers; SmolLM and SmolLM2 are Llamas
ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3_text": "gemma3",
    "t5": "t5",
    "mt5": "t5",
}
TAKES_FACTORS = ("llama",)


@dataclass(frozen=True)
class RopeKeys:
    """Keys without their architecture, and tensors of factors."""

    keys: dict[str, Any]
    tensors: dict[str, numpy.ndarray[Any, Any]] = field(default_factory=dict)


def rope_keys(rope: dict[str, Any], trained: int, longest: int, sharper: float = 1.0) -> RopeKeys:
    """The keys and tensors that stand for a config's rope parameters, with logits multiplied by `sharper` besides."""
    kind = rope["rope_type"]
    factor = float(rope.get("factor") or longest / rope.get("original_max_position_embeddings", longest))
    keys: dict[str, Any] = {"context_length": longest, "rope.freq_base": float(rope["rope_theta"])}
    attention, yarns_factor = math.sqrt(sharper), 1.0
    if kind in ("linear", "yarn"):
        keys |= {
            "context_length": max(longest, round(trained * factor)),
            "rope.scaling.type": kind,
            "rope.scaling.factor": factor,
        }
    if kind in ("yarn", "longrope"):
        keys |= {"rope.scaling.original_context_length": int(rope["original_max_position_embeddings"])}
    if kind == "yarn":
        yarns_factor = 0.1 * math.log(factor) + 1
        betas = {f"rope.scaling.yarn_{name}": float(rope[name]) for name in ("beta_fast", "beta_slow") if rope.get(name)}
        keys |= betas
    tensors: dict[str, numpy.ndarray[Any, Any]] = {}
    if kind == "longrope":
        keys |= {"rope.scaling.type": "longrope"}
        named = {"rope_factors_long.weight": "long_factor", "rope_factors_short.weight": "short_factor"}
        tensors = {name: numpy.array(rope[key], dtype=numpy.float32) for name, key in named.items()}
    wanted = attention * float(rope.get("attention_factor") or _attention_factor(rope, factor))
    if not math.isclose(wanted, yarns_factor, rel_tol=1e-7):
        keys |= {"rope.scaling.attn_factor": wanted / yarns_factor}
    return RopeKeys(keys, tensors)


def _attention_factor(rope: dict[str, Any], factor: float) -> float:
    """The factor of cos and sin that transformers takes where a config names none."""
    kind, log = rope["rope_type"], math.log(max(1.0, factor))
    if kind == "longrope":
        return math.sqrt(1 + log / math.log(rope["original_max_position_embeddings"]))
    mscale, of_all = rope.get("mscale"), rope.get("mscale_all_dim")
    if not (mscale and of_all):
        mscale, of_all = 1.0, 0.0
    return float((1 + 0.1 * mscale * log) / (1 + 0.1 * of_all * log)) if kind == "yarn" else 1.0


def refuse_rope(architecture: str, plan: Plan, own: dict[str, Any]) -> None:
    """Raise for rotations that llama.cpp does not compute for an architecture; `own` are the model's rope parameters."""
    rope, names = plan.rotation(own)
    kind = rope["rope_type"]
    problem = f"llama.cpp does not know {{}}, which {names} needs; the nearest that it computes is yarn:factor={plan.stretch}"
    if kind == "dynamic":
        raise BadInput(problem.format("frequencies that follow the input") + f" or ntk:factor={plan.stretch}")
    if kind in ("longrope", "llama3") and architecture not in TAKES_FACTORS:
        raise BadInput(problem.format(f"a factor for each pair of {architecture} models"))
    if kind == "yarn" and not rope.get("truncate", True):
        raise BadInput(problem.format("YaRN's ramp between pairs (truncate: false)"))
    if architecture == "gemma3" and any(rope.get(key) is not None for key in ("attention_factor", "mscale_all_dim")):
        raise BadInput(problem.format("an attention factor for some layers of gemma3 models"))
    if kind not in ("default", "linear", "yarn", "longrope", "llama3"):
        raise BadInput(problem.format(f"rotations of type {kind}"))
