"""Rewrite a GGUF file: keys of rotation and context, and, where layers or heads differ, a temperature in its query weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy

from lengthwise.calibration.export.gguf_blocks import Array, scaled_rows
from lengthwise.calibration.export.gguf_keys import RopeKeys, refuse_rope, rope_keys
from lengthwise.calibration.export.plan import Plan
from lengthwise.errors import BadInput, require

ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
SHARPER, LONGEST = "rope.scaling.attn_factor", "context_length"
QUERY = re.compile(r"(enc\.)?blk\.(\d+)\.attn_q(_norm)?\.(weight|bias)")
BIAS = re.compile(r"enc\.blk\.(\d+)\.attn_rel_b\.weight")
FUSED = re.compile(r"blk\.\d+\.attn_qkv\.weight")


def rewrite(source: Path, plan: Plan, out: Path) -> list[str]:
    """Copy the file with the plan's changes; returns a note on the keys that were changed."""
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(out, architecture)
    factor, longest = (_stored(reader, f"{architecture}.{key}") for key in (SHARPER, LONGEST))
    rope = _rope(plan, factor, max(plan.length, int(longest)))
    g = numpy.ones(plan.g.shape) if _is_uniform(plan) else plan.g.double().numpy()
    changed = {f"{architecture}.{key}": value for key, value in rope.keys.items()}
    for name, entry in reader.fields.items():
        # The writer counts and names these itself
        if name.startswith("GGUF.") or name == "general.architecture" or name in changed:
            continue
        # Another rotation is another whole
        if plan.rope is not None and name.startswith(f"{architecture}.rope.scaling."):
            continue
        kinds = entry.types
        writer.add_key_value(name, entry.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None)
    for name, value in changed.items():
        add_key(writer, name, value)
    for tensor in reader.tensors:
        if plan.rope is not None and tensor.name in ROPE_TENSORS:
            continue
        data = _sharpened(tensor, reader, g)
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    for name, factors in rope.tensors.items():
        writer.add_tensor(name, factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    keys = ", ".join(
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in changed.items()
    )
    return [f"its keys are {keys}"] if keys else []


def check_rewrite(source: Path, plan: Plan) -> None:
    """Refuse what the file cannot carry, before anything is written."""
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    require(architecture in ("llama", "qwen2", "qwen3", "gemma3", "t5"), f"--to gguf does not rewrite files of {architecture}")
    if plan.rope is not None:
        refuse_rope(architecture, plan, {})
    if plan.folds and not _is_uniform(plan):
        if any(FUSED.fullmatch(tensor.name) for tensor in reader.tensors):
            raise BadInput(f"{source.name} keeps queries, keys and values in one tensor; no temperature can be folded into it")
        g = plan.g.double().numpy()
        for tensor in reader.tensors:
            _sharpened(tensor, reader, g)


def _is_uniform(plan: Plan) -> bool:
    """Whether one factor of cos and sin makes the temperature: all heads share it, and whole keys are rotated."""
    rotary = plan.anatomy.rotates
    shared = bool((plan.g == plan.g[0, 0]).all()) and not any(plan.anatomy.windows)
    return rotary and shared and plan.anatomy.facts["rotary_size"] == plan.anatomy.key_size


def _stored(reader: Any, key: str) -> float:
    return float(reader.fields[key].contents()) if key in reader.fields else 1.0


def _rope(plan: Plan, factor: float, longest: int) -> RopeKeys:
    """Keys for the plan's rotation, and for a temperature that all layers share on top of the file's own `factor`."""
    sharper = float(plan.g[0, 0]) if _is_uniform(plan) else 1.0
    if plan.rope is not None:
        return rope_keys(plan.rope.parameters, plan.anatomy.train_length, plan.rope.longest, sharper)
    # What the file says of its rotation stays
    return RopeKeys(({SHARPER: factor * sharper**0.5} if sharper != 1 else {}) | {LONGEST: longest})


def add_key(writer: Any, name: str, value: Any) -> None:
    """Write a key of the type that llama.cpp reads."""
    kinds: dict[type, Any] = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
    kinds[type(value)](name, value)


def _times(data: Array, factor: Array) -> Array:
    product: Array = (data.astype(numpy.float64) * factor).astype(data.dtype)
    return product


def _sharpened(tensor: Any, reader: Any, g: Array) -> Array:
    """The tensor's data; the rows of queries, and of T5's bias, times g of their heads."""
    data: Array = tensor.data
    if bool((g == 1).all()):
        return data
    if (bias := BIAS.fullmatch(tensor.name)) is not None:
        # [buckets, heads]: one table for all layers, which agree
        return _times(data, g[int(bias[1])][None, :])
    query = QUERY.fullmatch(tensor.name)
    if query is None:
        return data
    heads = g[int(query[2])]
    names = {other.name for other in reader.tensors}
    normalised = f"blk.{query[2]}.attn_q_norm.weight" in names
    if query[3]:
        same = bool((heads == heads[0]).all())
        require(same, f"the heads of {tensor.name} share one norm, so a temperature a head cannot be folded; use --scope layer")
        return _times(data, heads[:1])
    if normalised:
        return data
    factors = numpy.repeat(heads, int(tensor.shape[-1]) // len(heads))
    block = data.shape[-1] * data.itemsize
    if tensor.tensor_type.name not in ("F32", "F16", "BF16", "F64"):
        import gguf

        block = gguf.GGML_QUANT_SIZES[tensor.tensor_type][1]
    return scaled_rows(tensor.name, tensor.tensor_type.name, data, factors, block)
