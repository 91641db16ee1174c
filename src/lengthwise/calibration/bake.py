"""Fold a temperature into the weights: a stock checkpoint that needs no lengthwise at run time.

The baked model has the temperature of one length for every input and every row, short ones included. On inputs of that length
an encoder computes what the extended one computes. In an extended decoder each row has the temperature of the keys it sees, so
there only the last row has this one. A checkpoint of the package's own families (GAU-alpha, the small decoder) still needs its
classes.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.calibration.fold import fold, keys_seen
from lengthwise.calibration.measure import run_stack
from lengthwise.common.text import parse_lengths
from lengthwise.errors import BadInput, require
from lengthwise.methods.base import stock_rotation
from lengthwise.methods.slots import Slots
from lengthwise.models.anatomy import FULL, Anatomy, anatomy_of, unwrapped
from lengthwise.models.extend import Method, extend
from lengthwise.models.patches import refuse_extended
from lengthwise.models.suitability import suitable_slots

PROBE = torch.arange(2, 18)[None]  # tokens on which the baked model must do as the extended one
WITHIN = {torch.float32: 1e-3, torch.float64: 1e-3}  # relative norm; coarser types round every weight
COARSE = 0.1


def bake(
    model: nn.Module,
    method: Method,
    *,
    length: int,
    train_length: int | None = None,
    inplace: bool = False,
    force: bool = False,
) -> Any:
    """A copy of the model (the model itself with `inplace`) whose logits carry the temperature `method` has at `length`."""
    refuse_extended(model, "bake")
    (length,) = parse_lengths(length)
    anatomy = anatomy_of(model, train_length)
    offloaded = any(parameter.is_meta for parameter in unwrapped(model).parameters())
    require(not offloaded, "weights are offloaded; load the model without device_map to bake it")
    slots = suitable_slots(anatomy, method, force)
    filled = ", ".join(slots.filled) or "nothing"
    folded = f"only temperatures can be folded into weights; this method fills: {filled}{_in_its_config(slots, anatomy)}"
    require(filled == "temperature", folded)
    if any(hasattr(module, "base_layer") for module in anatomy.stack.modules()):
        raise BadInput("this model carries an adapter, which a stock checkpoint cannot; merge it first (merge_and_unload)")
    baked = unwrapped(model) if inplace else copy.deepcopy(unwrapped(model))
    anatomy = anatomy_of(baked, train_length)
    rows = [slots.inverse_temperature(torch.tensor([[[n]]]), layer) for layer, n in enumerate(keys_seen(anatomy, length))]
    g = torch.stack([row.expand(1, anatomy.heads, 1)[0, :, 0] for row in rows])  # type: ignore[union-attr]  # [layers, heads]
    changed = bool((g != 1).any())
    require(changed, f"at length {length} the temperature is 1: nothing to bake; give a length above the training one")
    probe = PROBE % baked.get_input_embeddings().weight.shape[0]
    # A short forward also refuses what cannot be extended, and so has nothing to agree with
    with extend(baked, _Fixed(g), train_length=train_length, implementation="reference"):
        wanted = run_stack(anatomy, probe)
    before = fold(anatomy, g.double())
    if not _agree(run_stack(anatomy, probe), wanted):
        for weight, old in before:
            weight.copy_(old)
        raise BadInput(f"with scaled queries this {anatomy.family} model does not compute what it computes extended: not baked")
    # A note for people who find the checkpoint; transformers keeps unknown entries of a config as they are
    earlier: dict[str, Any] = getattr(baked.config, "lengthwise", None) or {}
    tau = _rounded(1 / g.double()) * _rounded(torch.tensor(earlier.get("tau", 1.0)))  # [layers, heads or 1]
    per_head = tau.shape[1] > 1
    values = (tau if per_head else tau[:, 0]).tolist()
    baked.config.lengthwise = {"baked_length": length, "tau": values, "per_head": per_head}
    return baked


def _in_its_config(slots: Slots, anatomy: Anatomy) -> str:
    """How a checkpoint gets what the rotation does without a change of its weights, in words; empty where it cannot."""
    if (rope := stock_rotation(slots.rotation)) is None:
        return ""
    factor, trained = rope["factor"], rope["original_max_position_embeddings"]
    own = getattr(anatomy.stack.config, "rope_parameters", None) or {}
    by_type = FULL in own
    rope_parameters = {**own, FULL: rope} if by_type else rope
    entries = json.dumps({"max_position_embeddings": round(factor * trained), "rope_parameters": rope_parameters})[1:-1]
    told = f". Such a checkpoint is made in its config.json, which transformers and vLLM read: set {entries}"
    options = f"--rope-scaling {rope['rope_type']} --rope-scale {factor:g} --yarn-orig-ctx {trained}"
    return told if by_type else f"{told}; llama.cpp takes {options}"


def _rounded(tau: Tensor) -> Tensor:  # [layers or 1, heads or 1]
    """tau to six digits, since g was float32, with one number a layer where its heads agree."""
    rounded = torch.tensor([float(f"{value:.6g}") for value in tau.flatten().tolist()], dtype=torch.float64)
    table = rounded.view(-1, tau.shape[1] if tau.dim() == 2 else 1)
    return table[:, :1] if bool((table == table[:, :1]).all()) else table


@dataclass(frozen=True)
class _Fixed:
    """The temperatures that are baked, as a method: the same g whatever a row sees."""

    g: Tensor  # [layers, heads]

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        return self.g[layer, None, :, None].to(visible.device).expand(visible.shape[0], -1, visible.shape[-1])


def _agree(baked: Tensor, wanted: Tensor) -> bool:
    difference = (baked.double() - wanted.double()).norm() / wanted.double().norm()
    # A model that tells NaN extended tells it baked
    return bool(difference <= WITHIN.get(wanted.dtype, COARSE)) or not bool(wanted.isfinite().all())
