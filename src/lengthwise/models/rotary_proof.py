"""How each layer of a loaded model rotates its queries and keys, seen on a few tokens instead of believed of its family.

The tokens go through the stack twice: as it is, and with a rotary embedding that rotates nothing (cos 1, sin 0). What reaches
the attention function the second time, rotated here, must be what reached it the first time. A family that normalises after it
has rotated, or rotates in a way of its own, does not pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.errors import BadInput
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.patches import IMPLEMENTATION, Patches
from lengthwise.models.rotary import PARTS, Rotary, no_rotation, rotated

TOKENS = 8

States = tuple[Tensor, Tensor]  # queries and keys, each [batch, heads, tokens, key_size]


def rotated_parts(patches: Patches, anatomy: Anatomy, rotary: Rotary, method: str) -> dict[nn.Module, str]:
    """Which of `rotary.PARTS` each attention module that a forward reaches rotates; or why `method` cannot be used."""
    as_is = _queries_and_keys(patches, anatomy)
    with patches.meanwhile():
        patches.set(rotary.module.__dict__, "forward", no_rotation(rotary))
        unrotated = _queries_and_keys(patches, anatomy)
    return {module: _rotated_part(module, rotary, as_is[module], states, method) for module, states in unrotated.items()}


def _rotated_part(module: nn.Module, rotary: Rotary, expected: States, unrotated: States, method: str) -> str:
    query = unrotated[0]
    tables = rotary.tables(query, torch.arange(query.shape[2], device=query.device)[None])
    for part in PARTS:
        try:
            ours = [rotated(module, part, states, tables) for states in unrotated]
        except (RuntimeError, IndexError, TypeError):
            continue  # tables of another size than this part, or a formula of queries alone
        if all(_same(*pair) for pair in zip(ours, expected, strict=True)):
            return part
    raise BadInput(
        f"{type(module).__name__} does more than rotate its queries and keys, or rotates in its own way, and {method} needs "
        "them unrotated: it cannot be used on this family"
    )


def _same(ours: Tensor, theirs: Tensor) -> bool:
    if ours.shape != theirs.shape:
        return False
    # The middle token: one whose expert was chosen otherwise the second time says nothing
    error = (ours - theirs).abs().float().amax((0, 1, 3)).median()
    return bool(error <= 4 * torch.finfo(theirs.dtype).eps * theirs.abs().float().max())


def _queries_and_keys(patches: Patches, anatomy: Anatomy) -> dict[nn.Module, States]:
    """What each attention module hands to its attention function when the stack reads a few tokens."""
    handed: dict[nn.Module, States] = {}

    def record(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        handed[module] = query, key
        # Every token sees itself alone, whatever its query and key: both runs then differ in nothing else
        return value.repeat_interleave(query.shape[1] // value.shape[1], 1).transpose(1, 2).contiguous(), None

    stack: Any = anatomy.stack
    table: Tensor = stack.get_input_embeddings().weight
    device = "cpu" if table.device.type == "meta" else table.device
    ids = (torch.arange(TOKENS, device=device) + table.shape[0] // 2)[None] % table.shape[0]
    options = {"use_cache": False} if anatomy.causal else {}
    with torch.no_grad(), patches.meanwhile():
        _replace_attention(patches, anatomy, record)
        try:
            stack(input_ids=ids, **options)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            what = f"{type(stack).__name__} cannot be run on a few tokens to see how it rotates"
            raise BadInput(f"{what} ({str(error).splitlines()[0] if str(error) else type(error).__name__})") from error
    return handed


def _replace_attention(patches: Patches, anatomy: Anatomy, function: Any) -> None:
    """`function` in the place of the stack's attention, and no dropout, which would also draw random numbers."""
    name = f"lengthwise proof {id(function)}"
    patches.set(type(ALL_ATTENTION_FUNCTIONS)._global_mapping, name, function)
    for config in anatomy.configs:
        patches.set(config.__dict__, IMPLEMENTATION, name)
    for module in anatomy.stack.modules():
        patches.set(module.__dict__, "training", False)
