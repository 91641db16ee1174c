"""How each layer of a loaded model rotates its queries and keys, seen on a few tokens instead of believed of its family.

The tokens go through the stack twice: as it is, and with its rotary embedding put to rest (cos 1, sin 0). What reaches the
attention function the second time, rotated here, must be what reached it the first time. A family that normalises after it has
rotated, or rotates in a way of its own, does not pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.errors import BadInput
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.patches import Changes, evaluating
from lengthwise.models.rotary import WAYS, Rotary, formula_of, unmoved

TOKENS = 8

# Queries and keys, as a layer handed them to its attention function
States = tuple[Tensor, Tensor]


def ways_of(anatomy: Anatomy, rotary: Rotary, method: str) -> dict[nn.Module, str]:
    """For each attention module that a forward reaches, which of `WAYS` is its own; or why `method` cannot be used."""
    own = _handed_over(anatomy)
    resting = Changes()
    with resting.in_force(anatomy.stack):
        resting.set(rotary.module.__dict__, "forward", unmoved(rotary))
        unrotated = _handed_over(anatomy)
    return {module: _way(module, rotary, own[module], states, method) for module, states in unrotated.items()}


def _way(module: nn.Module, rotary: Rotary, own: States, unrotated: States, method: str) -> str:
    formula, states = formula_of(module), unrotated[0]
    tables = rotary.tables(states, torch.arange(states.shape[2], device=states.device)[None])
    for name, way in WAYS.items():
        try:
            found = [way(formula, one, tables) for one in unrotated]
        except (RuntimeError, IndexError):
            continue  # tables of another size than what this way rotates
        if all(_same(one, other) for one, other in zip(found, own, strict=True)):
            return name
    raise BadInput(
        f"{type(module).__name__} does more than rotate its queries and keys, or rotates in its own way, and {method} needs "
        "them unrotated: it cannot be used on this family"
    )


def _same(found: Tensor, own: Tensor) -> bool:
    if found.shape != own.shape:
        return False
    # The middle token: one whose expert was chosen otherwise the second time says nothing
    error = (found - own).abs().float().amax((0, 1, 3)).median()
    return bool(error <= 4 * torch.finfo(own.dtype).eps * own.abs().float().max())


def _handed_over(anatomy: Anatomy) -> dict[nn.Module, States]:
    seen: dict[nn.Module, States] = {}

    def record(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        seen[module] = query, key
        # Every token sees itself alone, whatever its query and key: both runs then differ in nothing else
        return value.repeat_interleave(query.shape[1] // value.shape[1], 1).transpose(1, 2).contiguous(), None

    stack: Any = anatomy.stack
    table: Tensor = stack.get_input_embeddings().weight
    device = "cpu" if table.device.type == "meta" else table.device
    ids = (torch.arange(TOKENS, device=device) + table.shape[0] // 2)[None] % table.shape[0]
    options = {"use_cache": False} if _takes(stack, "use_cache") else {}
    with torch.no_grad(), _attending(anatomy, record):
        try:
            stack(input_ids=ids, **options)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            what = f"{type(stack).__name__} cannot be run on a few tokens to see how it rotates"
            raise BadInput(f"{what} ({str(error).splitlines()[0] if str(error) else type(error).__name__})") from error
    return seen


def _takes(stack: Any, name: str) -> bool:
    parameters = inspect.signature(type(stack).forward).parameters.values()
    return any(one.name == name or one.kind is one.VAR_KEYWORD for one in parameters)


@contextmanager
def _attending(anatomy: Anatomy, function: Any) -> Iterator[None]:
    """`function` in the place of the stack's attention, and no dropout, which would also draw random numbers."""
    name, functions = f"lengthwise proof {id(function)}", type(ALL_ATTENTION_FUNCTIONS)._global_mapping
    changes, parts = Changes(), (anatomy.stack, *anatomy.layers)
    functions[name] = function
    try:
        with changes.in_force(anatomy.stack), evaluating(anatomy.stack):
            for config in {id(part.config): part.config for part in parts if hasattr(part, "config")}.values():
                changes.set(config.__dict__, "_attn_implementation_internal", name)
            yield
    finally:
        del functions[name]
