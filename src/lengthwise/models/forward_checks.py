"""Hooks around every forward of an extended stack: what it is given is checked before, that every layer was reached after."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache

from lengthwise.errors import BadInput, require
from lengthwise.methods.base import method_name, sinks_and_window
from lengthwise.methods.slots import Slots
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.attention_interface import NAME
from lengthwise.models.cache import admit, mark_filled
from lengthwise.models.layer import Layer, active_slots
from lengthwise.models.masks import real_tokens
from lengthwise.models.patches import IMPLEMENTATION, LEFT_FIRST, Patches
from lengthwise.models.rotate import IN_A_CACHE, leaps
from lengthwise.models.state import LAYER
from lengthwise.models.suitability import refuse_past_the_table


def prove_reached(patches: Patches, anatomy: Anatomy) -> None:
    """Every forward of the stack must have gone through our function in every layer, or its result is withheld.

    A compiled graph is not asked: it would be compiled anew whenever a count changes.
    """
    running: set[int] = set()
    in_graphs: set[int] = set()
    configs = anatomy.configs
    depth = _depth(anatomy)

    def start(stack: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        replica = getattr(stack, "_is_replica", False)
        require(not patches.ended_early, LEFT_FIRST)
        if not patches.active:
            return
        if running:
            running.intersection_update(thread for thread in [*running] if _is_inside(thread, anatomy.stack))
        require(
            replica or running <= {threading.get_ident()},
            "two threads run this extended model at once; hold a lock around its forwards, or extend a copy for each",
        )
        running.add(threading.get_ident())
        refuse_another_implementation(configs, "extended; leave `extend`")
        refuse_a_trace()
        layers = _layers(anatomy)
        layers[0].read.clear()
        for layer in layers:
            layer.visits = 0

    def finish(*_: Any) -> None:
        if torch.compiler.is_compiling() or not patches.active:
            return
        layers = _layers(anatomy)
        layers[0].read.clear()
        missed = [layer.index for layer in layers if layer.visits == 0 and layer.index not in in_graphs]
        if missed:
            in_graphs.update(_compiled_by_themselves(anatomy))
            missed = [index for index in missed if index not in in_graphs]
        if missed and _depth(anatomy) < depth:
            # A draft of early exit is told to run the first layers alone
            return
        if missed:
            name = type(anatomy.layers[missed[0]]).__name__
            raise BadInput(
                f"{len(missed)} of {len(anatomy.layers)} attention layers of {type(anatomy.stack).__name__} were not reached "
                f"(the first is layer {missed[0]}, {name}): this family computes attention outside transformers' "
                "AttentionInterface and cannot be extended"
            )

    def release(*_: Any) -> None:
        if not torch.compiler.is_compiling():
            running.discard(threading.get_ident())

    patches.add_hook(anatomy.stack.register_forward_pre_hook, start)
    patches.add_hook(anatomy.stack.register_forward_hook, finish)
    # After a failed forward, too
    patches.add_hook(anatomy.stack.register_forward_hook, release, always_call=True)


def _compiled_by_themselves(anatomy: Anatomy) -> list[int]:
    """Layers that were given to torch.compile without their stack, alone or in a block: nobody counts their visits."""
    inside = {inner for module in anatomy.stack.modules() if _is_compiled(module) for inner in module.modules()}
    return [index for index, layer in enumerate(anatomy.layers) if layer in inside]


def _is_compiled(module: nn.Module) -> bool:
    """By `module.compile()`, by `torch.compile(module)` in its place, or by a compiled `forward`."""
    wrapped = hasattr(module, "_orig_mod") or hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")
    return wrapped or module._compiled_call_impl is not None


def _depth(anatomy: Anatomy) -> int:
    return int(getattr(anatomy.stack.config, "num_hidden_layers", 0))


def _layers(anatomy: Anatomy) -> list[Layer]:
    # Runs twice a token: no call a layer
    return [layer for module in anatomy.layers if (layer := module.__dict__.get(LAYER.key)) is not None]


def refuse_another_implementation(configs: Sequence[Any], how: str) -> None:
    """Raise where `set_attn_implementation` has taken the layers from us."""
    for config in configs:
        taken = getattr(config, IMPLEMENTATION)
        require(str(taken).startswith(NAME), f"{taken} attention was set while this model is {how} first, and set it then")


def refuse_a_trace() -> None:
    problem = "torch.jit.trace keeps what one input's mask says for all inputs; use torch.export, or trace the model as it was"
    require(not torch.jit.is_tracing(), problem)  # type: ignore[attr-defined, no-untyped-call]


def _is_inside(thread: int, stack: nn.Module) -> bool:
    """Whether the thread runs a method of the stack: no hook tells that an interrupt ended its forward."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_locals.get("self") is not stack:
        frame = frame.f_back
    return frame is not None


def _by_name(stack: nn.Module) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """All that a forward of the stack is given, by the names of its parameters."""
    names = list(inspect.signature(stack.forward).parameters)
    return lambda args, kwargs: {**dict(zip(names, args, strict=False)), **kwargs}


def check_caches(patches: Patches, anatomy: Anatomy, rotating: bool) -> None:
    """Keys of a cache stand where the method put them: one filled under another method is refused.

    A cache that the model makes itself is told from others by what comes back.
    """
    by_name = _by_name(anatomy.stack)

    def leap(given: dict[str, Any]) -> bool:
        places = given.get("position_ids")
        if not rotating or not isinstance(places, Tensor) or places.shape[-1] < 2:
            return False
        return leaps(places, real_tokens(given.get("attention_mask"), places.shape[-1]))

    def check(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = by_name(args, kwargs)
        cache, mask = given.get("past_key_values"), given.get("attention_mask")
        if not patches.active or cache is None:
            return
        # Read at every forward: an outer or an inner `extend` fills slots too
        slots = active_slots(anatomy)
        assert slots is not None
        admit(cache, slots, anatomy.layers, mask, patches.status)
        require(not leap(given), IN_A_CACHE)

    def mark(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if torch.compiler.is_compiling() or not patches.active:
            return
        values = output.values() if isinstance(output, dict) else output if isinstance(output, tuple) else ()
        caches = [value for value in values if isinstance(value, Cache)]
        slots, given = active_slots(anatomy), by_name(args, kwargs)
        assert slots is not None
        # One that nobody asked for is refused only when it is gone on with
        leapt = bool(caches) and given.get("past_key_values") is None and leap(given)
        for cache in caches:
            mark_filled(cache, slots, patches.status, " at position_ids that leap" if leapt else "")

    patches.add_hook(anatomy.stack.register_forward_pre_hook, check, with_kwargs=True)
    patches.add_hook(anatomy.stack.register_forward_hook, mark, with_kwargs=True)


def check_lengths(patches: Patches, anatomy: Anatomy, slots: Slots) -> None:
    """Inputs that the model's own positions or its own window cannot hold are refused before they are read."""
    keys = sinks_and_window(slots.visible)
    windows = [
        window
        for window, layer in zip(anatomy.windows, _layers(anatomy), strict=True)
        if window is not None and layer.slots.visible is not None
    ]
    wide = [window for window in windows if keys is not None and window > keys.window]
    sliding = min(wide, default=None)
    if anatomy.position_table is None and sliding is None:
        return

    by_name = _by_name(anatomy.stack)

    def check(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = by_name(args, kwargs)
        read = next((given[name] for name in ("input_ids", "inputs_embeds") if isinstance(given.get(name), Tensor)), None)
        if not patches.active or read is None:
            return
        cache = given.get("past_key_values")
        tokens = read.shape[1] + (0 if cache is None else cache.get_seq_length())
        refuse_past_the_table(anatomy, tokens, given.get("position_ids"))
        if sliding is not None and tokens > sliding:
            raise BadInput(
                f"{method_name(slots.visible)} keeps the first keys of a sequence, and {type(anatomy.stack).__name__} has a "
                f"window of its own of {sliding} tokens, which has left them behind at {tokens}; leave it out, or take window"
            )

    patches.add_hook(anatomy.stack.register_forward_pre_hook, check, with_kwargs=True)
