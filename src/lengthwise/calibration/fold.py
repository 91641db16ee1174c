"""Scale the logits of a stack through its weights alone, so that plain transformers needs no temperature.

    g * (q.k + bias) = (g q).k + g bias

q comes from a projection, whose rows are scaled a head at a time, or, where q is normalised after its projection, from the
norm's weights. T5's bias comes from a table that layers share, which is why layers must then agree on g. ALiBi's slopes are
made from the config, so what multiplies them is written there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lengthwise.errors import BadInput
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.family_base import AlibiSlopes


def fold(anatomy: Anatomy, g: Tensor) -> Callable[[], None]:
    """Multiply every logit of layer l, head h by g[l, h], in place. Checks everything before it changes anything.

    The function that comes back undoes it.
    """
    scalers = [_scaler(anatomy, module, row) for module, row in zip(anatomy.layers, g, strict=True)]
    tables = _bias_rows(anatomy, g)
    parts = [part for parts in scalers for part in parts]
    parts += [(table.weight.detach(), row, 0.0) for table, row in tables if not isinstance(table, AlibiSlopes)]
    before = [(weight, weight.clone()) for weight, _, _ in parts]
    slopes = [(table, table.factors) for table, _ in tables if isinstance(table, AlibiSlopes)]
    config: Any = anatomy.stack.config
    factors = getattr(config, "alibi_factors", None)
    for weight, factor, shift in parts:
        # In float64, so that one rounding is all that is lost
        wide = (weight.double() + shift) * factor.to(weight.device).double() - shift
        weight.copy_(wide.to(weight.dtype))
    for table, row in tables:
        if isinstance(table, AlibiSlopes):
            table.sharpen(row.tolist())
    if slopes:
        config.alibi_factors = [list(table.factors) for table, _ in slopes]

    def undo() -> None:
        for weight, old in before:
            weight.copy_(old)
        for table, old_factors in slopes:
            table.factors = old_factors
            table.sharpen([1.0] * len(old_factors))
        if slopes:
            config.alibi_factors = factors

    return undo


def keys_seen(anatomy: Anatomy, length: int) -> list[int]:
    """How many keys the fullest row of each layer sees in an input of `length` tokens; a sliding window limits it."""
    # Transformers counts a window of both directions from the row's own key
    widths = [window if window is None or anatomy.causal else 2 * window - 1 for window in anatomy.windows]
    return [length if width is None else min(length, width) for width in widths]


# (weight or a view of it, factor that broadcasts to it, what the norm adds to its weight)
Part = tuple[Tensor, Tensor, float]


def _scaler(anatomy: Anatomy, module: Any, row: Tensor) -> list[Part]:
    heads, size = anatomy.heads, anatomy.key_size
    _refuse_what_comes_after(anatomy, module)
    norm = getattr(module, "q_norm", None)
    if isinstance(norm, nn.Module) and not isinstance(norm, nn.Identity):
        return _norm_parts(module, row, heads, size)
    # q alone, or q in front of k and v
    for name in ("q", "q_proj", "query", "qkv_proj", "Wqkv"):
        linear = getattr(module, name, None)
        if isinstance(linear, nn.Linear) and ("qkv" in name or linear.out_features == heads * size):
            return _rows(linear, slice(0, heads * size), row.repeat_interleave(size))
    linear = getattr(module, "query_key_value", None)
    if isinstance(linear, nn.Linear) and linear.out_features == 3 * heads * size:
        # GPT-NeoX keeps q, k and v of one head together
        ones = torch.ones_like(row)
        factor = torch.stack([row, ones, ones], 1)[..., None].expand(heads, 3, size).reshape(-1)
        return _rows(linear, slice(None), factor)
    linear = getattr(module, "c_attn", None)
    if isinstance(linear, Conv1D) and linear.nf == 3 * heads * size:
        return _rows(linear, slice(0, heads * size), row.repeat_interleave(size))
    if isinstance(gamma := getattr(module, "gamma_q", None), nn.Parameter):
        return [(gamma.detach(), row, 0.0)]
    raise BadInput(f"lengthwise does not know where {type(module).__name__} makes its queries, so it cannot bake this family")


def _refuse_what_comes_after(anatomy: Anatomy, module: Any) -> None:
    """Refuse layers that do something to q after its projection that would undo a factor."""
    name = type(module).__name__
    if any(getattr(holder, "clip_qkv", None) is not None for holder in (anatomy.stack.config, module)):
        raise BadInput(f"{name} clips q after its projection, so no temperature can be folded into it")
    if getattr(anatomy.stack.config, "cos_scale", None) is not None:
        raise BadInput(f"{name} brings its queries to length 1 (cos_scale), so no temperature can be folded into them")
    for child, _ in module.named_children():
        if "norm" in child and child not in ("q_norm", "k_norm", "v_norm"):
            raise BadInput(f"lengthwise does not know what {child} of {name} does to q, so it cannot bake this family")


def _rows(linear: nn.Linear | Conv1D, rows: slice, factor: Tensor) -> list[Part]:
    if not linear.weight.is_floating_point() or linear.weight.dtype.itemsize < 2:
        raise BadInput(f"weights of type {linear.weight.dtype} are quantised; bake the checkpoint they were made from")
    # GPT-2's projections keep [inputs, outputs]
    weight = linear.weight.detach().T if isinstance(linear, Conv1D) else linear.weight.detach()
    parts: list[Part] = [(weight[rows], factor[:, None], 0.0)]
    if linear.bias is not None:
        parts.append((linear.bias.detach()[rows], factor, 0.0))
    return parts


def _norm_parts(module: Any, row: Tensor, heads: int, size: int) -> list[Part]:
    parameters = {name: parameter.detach() for name, parameter in module.q_norm.named_parameters()}
    if "weight" not in parameters:
        raise BadInput(f"{type(module).__name__} normalises q without weights, so no temperature can be folded into them")
    weight = parameters["weight"]
    if weight.numel() == heads * size and heads > 1:
        factor = row.repeat_interleave(size).reshape(weight.shape)
    elif bool((row == row[0]).all()):
        factor = row[:1]
    else:
        raise BadInput(
            f"the heads of {type(module).__name__} share the norm of their queries, so a temperature a head cannot be folded; "
            "calibrate with --scope model or layer"
        )
    # Some norms (Gemma's) multiply by 1 + weight: with weights of zero they still let something through
    nothing = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    probe = torch.linspace(-1, 1, weight.numel(), dtype=weight.dtype, device=weight.device).reshape(weight.shape)
    shift = float(bool(torch.func.functional_call(module.q_norm, nothing, (probe,)).any()))
    return [(parameter, factor, shift if name == "weight" else 0.0) for name, parameter in parameters.items()]


def _bias_rows(anatomy: Anatomy, g: Tensor) -> list[tuple[Any, Tensor]]:
    """Each bias table once, with the factor its layers agree on."""
    tables: dict[int, tuple[Any, Tensor]] = {}
    for owner, row in zip(anatomy.bias_owners, g, strict=True):
        if owner is None:
            continue
        table: Any = owner.relative_attention_bias
        if not isinstance(table, AlibiSlopes) and not isinstance(table.weight, nn.Parameter):
            raise BadInput(f"the bias of {type(owner).__name__} is no weight of the checkpoint, so it cannot be baked")
        known = tables.setdefault(id(owner), (table, row))
        if not torch.equal(known[1], row):
            raise BadInput(
                f"the layers of {type(anatomy.stack).__name__} share one bias table, so temperatures that differ between "
                "layers cannot be folded into it; calibrate with --scope model, or keep lengthwise at run time"
            )
    return list(tables.values())
