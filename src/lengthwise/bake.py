"""Fold a temperature into the weights: a stock checkpoint that needs no lengthwise at run time.

The baked model has the temperature of one length for every input and every row, short ones included. On inputs of that length
an encoder computes what the extended one computes. In an extended decoder each row has the temperature of the keys it sees, so
there only the last row has this one.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from lengthwise.errors import BadInput
from lengthwise.extend import Method, extend, slots_of
from lengthwise.measure import run_stack
from lengthwise.models.anatomy import anatomy_of, unwrapped
from lengthwise.models.fold import fold, keys_seen


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
    anatomy = anatomy_of(model, train_length)
    slots = slots_of(anatomy, method, force)
    if slots.filled != ("temperature",):
        raise BadInput(
            f"only temperatures can be folded into weights; this method fills: {', '.join(slots.filled) or 'nothing'}"
        )
    # A short forward refuses what cannot be extended, and so has nothing to agree with
    with extend(model, method, train_length=train_length, force=force, implementation="reference"):
        run_stack(anatomy, torch.arange(2, 6)[None])
    baked = unwrapped(model) if inplace else copy.deepcopy(unwrapped(model))
    anatomy = anatomy_of(baked, train_length)
    rows = [slots.inverse_temperature(torch.tensor([[[n]]]), layer) for layer, n in enumerate(keys_seen(anatomy, length))]
    g = torch.stack([row.expand(1, anatomy.heads, 1)[0, :, 0] for row in rows])  # type: ignore[union-attr]  # [layers, heads]
    if bool((g == 1).all()):
        raise BadInput(
            f"at length {length} the temperature is 1, so there is nothing to bake; give a length above the training one"
        )
    fold(anatomy, g.double())
    # A note for people who find the checkpoint; transformers keeps unknown entries of a config as they are
    baked.config.lengthwise = {
        "baked_length": length,
        "tau": (1 / g.double()).mean(1).tolist(),
        "per_head": bool((g != g[:, :1]).any()),
    }
    return baked
