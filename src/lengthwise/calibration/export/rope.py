"""Frequencies of a method as `rope_parameters` of a config.json, which transformers, vLLM and others compute by themselves.

The simplest entry that gives the wanted frequencies is taken: what the method itself names (yarn, dynamic, longrope), another
base, a linear factor, or else a factor for every pair. None is believed: the model's own rotary embedding is made from each.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import BadInput, is_out_of_memory
from lengthwise.methods.base import FrequencyRotation, follows_length, method_name, stock_rotation
from lengthwise.models.anatomy import FULL, Anatomy
from lengthwise.models.patches import Patches
from lengthwise.models.rotary import Rotary, rotary_of
from lengthwise.models.rotary_proof import rotated_parts

STILL = 1e30  # divides a frequency that is to be 0
CLOSE = 2e-6  # a few roundings of float32, of the base and of the power
# Engines multiply the config's longest input by the factor of these themselves
COUNTS_FROM_TRAINED = ("linear", "dynamic")
KEPT = (
    *("partial_rotary_factor", "llama_4_scaling_beta", "original_max_position_embeddings", "max_position_embeddings"),
    *("mrope_section", "mrope_interleaved"),  # how the axes of pictures share the pairs
)


@dataclass(frozen=True)
class Rope:
    """Rope parameters for a config, and what they change."""

    parameters: dict[str, Any]  # of the layers that are changed
    whole: dict[str, Any]  # the config's `rope_parameters`
    longest: int  # the config's `max_position_embeddings`
    sharpness: float  # by how much these multiply the logits of the changed layers, against the model's own
    served: tuple[bool, ...]  # for each layer, whether it is changed


def find_rope(anatomy: Anatomy, method: FrequencyRotation, length: int) -> Rope:
    """The rope parameters with which a stock model rotates as `method` does, up to `length` tokens."""
    rotary = rotary_of(anatomy, method_name(method))
    own_factor = _attention_factor(rotary.module, rotary)
    for parameters in _candidates(anatomy, rotary, method, length):
        rope = _built(anatomy, rotary, method, length, parameters)
        if rope is not None and rope.sharpness != 1 and not _rotates_all(anatomy, rotary, method):
            # What is not rotated is not multiplied either: weights have to
            own = {"attention_factor": own_factor, **_for_sglang(parameters, own_factor)}
            rope = _built(anatomy, rotary, method, length, {**parameters, **own})
        if rope is not None:
            return rope
    raise BadInput(f"the frequencies of {method_name(method)} cannot be written into the config of this {anatomy.family} model")


def _candidates(anatomy: Anatomy, rotary: Rotary, method: FrequencyRotation, length: int) -> Iterator[dict[str, Any]]:
    """Rope parameters to try, the plainest first."""
    base = anatomy.facts.get("base", 10_000.0)
    stock = stock_rotation(method)
    if stock is not None:
        yield {"rope_theta": base, **stock}
    wanted, pairs = _wanted(rotary, method, length, anatomy.train_length).double(), len(rotary.trained)
    if not follows_length(method) and bool((wanted > 0).all()):
        # theta_i = 1/s base'^(-i / pairs)
        ratio = float(wanted[0] / wanted[-1])
        new_base = _round(ratio ** (pairs / (pairs - 1))) if pairs > 1 else base
        yield {"rope_type": "default", "rope_theta": new_base}
        stretch = _round(1 / float(wanted[0]))
        yield {"rope_type": "linear", "rope_theta": new_base, "factor": stretch}
    plain = base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    short = _wanted(rotary, method, anatomy.train_length, anatomy.train_length).double()
    yield {
        "rope_type": "longrope",
        "rope_theta": base,
        "factor": max(1.0, length / anatomy.train_length),
        "original_max_position_embeddings": anatomy.train_length,
        "attention_factor": _attention_factor(rotary.module, rotary),
        "long_factor": (plain / wanted.cpu()).clamp(max=STILL).tolist(),
        "short_factor": (plain / short.cpu()).clamp(max=STILL).tolist(),
    }


def _wanted(rotary: Rotary, method: FrequencyRotation, length: int, train_length: int) -> Tensor:  # [pairs]
    return method.frequencies(rotary.trained, length if follows_length(method) else train_length).detach()


def _built(anatomy: Anatomy, rotary: Rotary, method: FrequencyRotation, length: int, parameters: dict[str, Any]) -> Rope | None:
    """The parameters as a `Rope`, if the model's own rotary embedding makes the wanted frequencies of them; else None."""
    trained, own = anatomy.train_length, dict(getattr(anatomy.stack.config, "rope_parameters", None) or {})
    before = own.get(FULL, {}) if rotary.layer_type else own
    parameters = {**{key: before[key] for key in KEPT if key in before}, **parameters}
    if parameters["rope_type"] == "longrope":
        # What vLLM and SGLang call the attention factor
        parameters |= dict.fromkeys(("short_mscale", "long_mscale"), parameters["attention_factor"])
    whole = {**own, FULL: parameters} if rotary.layer_type else parameters
    stretched = round(trained * (parameters.get("factor") or 1))
    longest = trained if parameters["rope_type"] in COUNTS_FROM_TRAINED else max(length, stretched)
    config: Any = copy.deepcopy(anatomy.stack.config)
    set_rope(config, whole, longest)
    if not _accepted(config):
        return None
    layer_type = () if rotary.layer_type is None else (rotary.layer_type,)
    for n in {length, trained} if follows_length(method) else {length}:
        try:
            module: Any = type(rotary.module)(config=config)
            module(torch.zeros(1, 1, 1), torch.tensor([[0, n - 1]]), *layer_type)
        except (ValueError, KeyError, TypeError, ZeroDivisionError):
            return None
        if not _same(module._buffers[rotary.buffer], _wanted(rotary, method, n, trained)):
            return None
    sharpness = (_attention_factor(module, rotary) / _attention_factor(rotary.module, rotary)) ** 2
    return Rope(parameters, whole, longest, sharpness, tuple(rotary.serves(kind) for kind in anatomy.layer_types))


def set_rope(config: Any, rope_parameters: dict[str, Any], longest: int) -> None:
    """Write rope parameters and the longest input into a config."""
    config.rope_parameters = copy.deepcopy(rope_parameters)
    config.max_position_embeddings = longest
    parameters = rope_parameters.get(FULL, rope_parameters)
    # Phi-3 asks its config when a cache has to be made anew
    if hasattr(config, "original_max_position_embeddings") and "original_max_position_embeddings" in parameters:
        config.original_max_position_embeddings = parameters["original_max_position_embeddings"]


def _accepted(config: Any) -> bool:
    """Whether the family's own config takes these parameters: Phi-3's knows longrope alone."""
    try:
        type(config).from_dict(config.to_dict())
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return False
    return True


def _same(made: Tensor, wanted: Tensor) -> bool:
    return made.shape == wanted.shape and torch.allclose(made.double(), wanted.to(made.device).double(), rtol=CLOSE, atol=1e-20)


def _attention_factor(module: Any, rotary: Rotary) -> float:
    """The factor of cos and sin in a rotary embedding."""
    prefix = "" if rotary.layer_type is None else f"{rotary.layer_type}_"
    return float(getattr(module, f"{prefix}attention_scaling", 1.0))


def _for_sglang(parameters: dict[str, Any], attention_factor: float) -> dict[str, Any]:
    """The same factor for SGLang and older vLLM, which multiply YaRN's own by it."""
    if parameters["rope_type"] != "yarn":
        return {}
    return {"attn_factor": attention_factor / (0.1 * math.log(parameters["factor"]) + 1)}


def _rotates_all(anatomy: Anatomy, rotary: Rotary, method: FrequencyRotation) -> bool:
    """Whether every layer that has these frequencies rotates its queries and keys whole."""
    patches = Patches(anatomy.stack)
    try:
        patches.put_on()
        parts = rotated_parts(patches, anatomy, rotary, method_name(method))
    except BadInput:
        return False
    finally:
        patches.undo()
    served = [layer for layer, kind in zip(anatomy.layers, anatomy.layer_types, strict=True) if rotary.serves(kind)]
    sizes_agree = 2 * len(rotary.trained) == anatomy.key_size
    return sizes_agree and all(parts.get(layer) == "all of it" for layer in served)


def _round(value: float) -> float:
    """The number to six digits, where it is that but for a rounding of float32."""
    plain = float(f"{value:.6g}")
    return plain if math.isclose(plain, value, rel_tol=1e-7) else value
