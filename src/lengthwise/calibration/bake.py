"""Fold a temperature into the weights: a stock checkpoint that needs no lengthwise at run time.

The baked model has the temperature of one length for every input and every row, short ones included. On inputs of that length
an encoder computes what the extended one computes. In an extended decoder each row has the temperature of the keys it sees, so
there only the last row has this one. A checkpoint of the package's own families (GAU-alpha, the small decoder) still needs its
classes.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.calibration.fold import fold, keys_seen
from lengthwise.calibration.measure import run_stack
from lengthwise.common.arguments import typed
from lengthwise.common.formats import shown
from lengthwise.common.text import parse_lengths
from lengthwise.errors import BadInput, require
from lengthwise.methods.slots import Slots
from lengthwise.models.anatomy import Anatomy, anatomy_of, unwrapped
from lengthwise.models.extend import Method, extend
from lengthwise.models.patches import refuse_extended
from lengthwise.models.suitability import suitable_slots

PROBE = torch.arange(2, 18)[None]  # tokens on which the baked model must do as the extended one
WITHIN = {torch.float32: 1e-3, torch.float64: 1e-3}  # relative norm; coarser types round every weight
COARSE = 0.1


@typed
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
    refuse_unsavable(model)
    slots = suitable_slots(anatomy_of(model, train_length), method, force)
    filled = ", ".join(slots.filled) or "nothing"
    elsewhere = "; `lengthwise export` writes frequencies into the config" if slots.frequencies else ""
    require(filled == "temperature", f"only temperatures can be folded into weights; this method fills: {filled}{elsewhere}")
    baked = unwrapped(model) if inplace else copy.deepcopy(unwrapped(model))
    g = sharpness_at(anatomy_of(baked, train_length), slots, length)
    changed = bool((g != 1).any())
    require(changed, f"at length {length} the temperature is 1: nothing to bake; give a length above the training one")
    fold_and_check(baked, g, length, train_length)
    return baked


def refuse_unsavable(model: nn.Module) -> None:
    """Refuse models with offloaded weights, or with an adapter, which a stock checkpoint cannot hold."""
    offloaded = any(parameter.is_meta for parameter in unwrapped(model).parameters())
    require(not offloaded, "weights are offloaded; load the model without device_map to bake it")
    if any(hasattr(module, "base_layer") for module in unwrapped(model).modules()):
        raise BadInput("this model carries an adapter, which a stock checkpoint cannot; merge it first (merge_and_unload)")


def sharpness_at(anatomy: Anatomy, slots: Slots, length: int) -> Tensor:  # -> [layers, heads]
    """g of every layer and head for a row that sees all it can of an input of `length` tokens."""
    table = torch.ones(len(anatomy.layers), anatomy.heads)
    for layer, n in enumerate(keys_seen(anatomy, length)):
        if (g := slots.inverse_temperature(torch.tensor([[[n]]]), layer)) is not None:
            table[layer] = g.expand(1, anatomy.heads, 1)[0, :, 0].detach()
    return table


def fold_and_check(model: Any, g: Tensor, length: int, train_length: int | None) -> None:  # [layers, heads]
    """Fold g into the weights, and undo it where the model then computes something else on a few tokens than when extended."""
    anatomy, earlier = anatomy_of(model, train_length), _baked_before(model, g)
    probe = PROBE % model.get_input_embeddings().weight.shape[0]
    # A short forward also refuses what cannot be extended, and so has nothing to agree with
    with extend(model, FixedSharpness(g), train_length=train_length, implementation="reference"):
        wanted = run_stack(anatomy, probe)
    undo = fold(anatomy, g.double())
    if not _agree(run_stack(anatomy, probe), wanted):
        undo()
        raise BadInput(f"with scaled queries this {anatomy.family} model does not compute what it computes extended: not baked")
    # A note for people who find the checkpoint; transformers keeps unknown entries of a config as they are
    tau = _rounded(1 / g.double()) * earlier  # [layers, heads or 1]
    per_head = tau.shape[1] > 1
    values = (tau if per_head else tau[:, 0]).tolist()
    model.config.lengthwise = {"baked_length": length, "tau": values, "per_head": per_head}


def _baked_before(model: Any, g: Tensor) -> Tensor:  # [layers, heads] -> [layers or 1, heads or 1]
    """The tau that an earlier `bake` noted in the config; 1 without a note."""
    note = getattr(model.config, "lengthwise", None) or {}
    try:
        tau = _rounded(torch.tensor(note.get("tau", 1.0)))
        tau.expand_as(g)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        problem = f"the model's config has a 'lengthwise' of {shown(note)}, which bake did not write"
        raise BadInput(f"{problem}; take it out of config.json") from None
    return tau


def _rounded(tau: Tensor) -> Tensor:  # [layers or 1, heads or 1]
    """tau to six digits, since g was float32, with one number a layer where its heads agree."""
    rounded = torch.tensor([float(f"{value:.6g}") for value in tau.flatten().tolist()], dtype=torch.float64)
    table = rounded.view(-1, tau.shape[1] if tau.dim() == 2 else 1)
    return table[:, :1] if bool((table == table[:, :1]).all()) else table


@dataclass(frozen=True)
class FixedSharpness:
    """The temperatures that are baked, as a method: the same g whatever a row sees."""

    g: Tensor  # [layers, heads]

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        return self.g[layer, None, :, None].to(visible.device).expand(visible.shape[0], -1, visible.shape[-1])


def _agree(baked: Tensor, wanted: Tensor) -> bool:
    difference = (baked.double() - wanted.double()).norm() / wanted.double().norm()
    # A model that tells NaN extended tells it baked
    return bool(difference <= WITHIN.get(wanted.dtype, COARSE)) or not bool(wanted.isfinite().all())
