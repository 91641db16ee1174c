"""Scale the logits of a stack through its weights alone, so that plain transformers needs no temperature.

    g * (q.k + bias) = (g q).k + g bias

q comes from a projection, whose rows are scaled a head at a time, or, where q is normalised after its projection, from the
norm's weights. T5's bias comes from a table that layers share, which is why layers must then agree on g.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.errors import BadInput
from lengthwise.models.anatomy import Anatomy


def fold(anatomy: Anatomy, g: Tensor) -> None:
    """Multiply every logit of layer l, head h by g[l, h], in place. Checks everything before it changes anything."""
    scalers = [_scaler(anatomy, module, row) for module, row in zip(anatomy.layers, g, strict=True)]
    tables = _bias_rows(anatomy, g)
    for weight, factor, shift in (part for parts in scalers for part in parts):
        _scale(weight, factor, shift)
    for owner, row in tables:
        _scale(owner.relative_attention_bias.weight.detach(), row, 0.0)


def _scale(weight: Tensor, factor: Tensor, shift: float) -> None:
    """weight + shift times factor, computed in float64 so that one rounding is all that is lost."""
    wide = (weight.double() + shift) * factor.to(weight.device).double() - shift
    weight.copy_(wide.to(weight.dtype))


# (weight or a view of it, factor that broadcasts to it, what the norm adds to its weight)
Part = tuple[Tensor, Tensor, float]


def _scaler(anatomy: Anatomy, module: Any, row: Tensor) -> list[Part]:
    heads, size = anatomy.heads, anatomy.key_size
    if getattr(anatomy.stack.config, "clip_qkv", None) is not None:
        raise BadInput(f"{type(module).__name__} clips q after its projection, so no temperature can be folded into it")
    if isinstance(getattr(module, "q_norm", None), nn.Module):
        return [_norm_part(module, row, heads, size)]
    for name in ("q", "q_proj", "query"):
        if isinstance(linear := getattr(module, name, None), nn.Linear):
            return _rows(linear, slice(0, heads * size), row.repeat_interleave(size))
    if isinstance(linear := getattr(module, "qkv_proj", None), nn.Linear):
        return _rows(linear, slice(0, heads * size), row.repeat_interleave(size))
    if isinstance(linear := getattr(module, "query_key_value", None), nn.Linear):
        # GPT-NeoX keeps q, k and v of one head together
        ones = torch.ones_like(row)
        factor = torch.stack([row, ones, ones], 1)[..., None].expand(heads, 3, size).reshape(-1)
        return _rows(linear, slice(None), factor)
    raise BadInput(f"lengthwise does not know where {type(module).__name__} makes its queries, so it cannot bake this family")


def _rows(linear: nn.Linear, rows: slice, factor: Tensor) -> list[Part]:
    if not linear.weight.is_floating_point() or linear.weight.dtype.itemsize < 2:
        raise BadInput(f"weights of type {linear.weight.dtype} are quantised; bake the checkpoint they were made from")
    parts: list[Part] = [(linear.weight.detach()[rows], factor[:, None], 0.0)]
    if linear.bias is not None:
        parts.append((linear.bias.detach()[rows], factor, 0.0))
    return parts


def _norm_part(module: Any, row: Tensor, heads: int, size: int) -> Part:
    weight = module.q_norm.weight.detach()
    # Gemma's norms multiply by 1 + weight
    shift = 1.0 if "Gemma" in type(module.q_norm).__name__ else 0.0
    if weight.numel() == heads * size and heads > 1:
        return weight, row.repeat_interleave(size), shift
    if not bool((row == row[0]).all()):
        raise BadInput(
            f"the heads of {type(module).__name__} share the norm of their queries, so a temperature a head cannot be folded; "
            "calibrate with --scope model or layer"
        )
    return weight, row[:1], shift


def _bias_rows(anatomy: Anatomy, g: Tensor) -> list[tuple[Any, Tensor]]:
    """Each bias table once, with the factor its layers agree on."""
    tables: dict[int, tuple[Any, Tensor]] = {}
    for owner, row in zip(anatomy.bias_owners, g, strict=True):
        if owner is None:
            continue
        known = tables.setdefault(id(owner), (owner, row))
        if not torch.equal(known[1], row):
            raise BadInput(
                f"the layers of {type(anatomy.stack).__name__} share one bias table, so temperatures that differ between "
                "layers cannot be folded into it; calibrate with --scope model, or keep lengthwise at run time"
            )
    return list(tables.values())
