"""T5's attention in fast kernels and O(L) memory, for any length and any use, without a method.

    lengthwise.accelerate(model)                  # from now on, until lengthwise.restore(model)
    with lengthwise.accelerate(model): ...        # or for a while

Of anything that holds a T5, encoder and decoder: a model, a SentenceTransformer, a pipeline of transformers or diffusers.
The numbers are those of the model, but for roundings of its data type. It is `extend` without a method, on every stack, at
every length.
"""

from __future__ import annotations

import copyreg
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.attention import IMPLEMENTATIONS
from lengthwise.common.arguments import typed
from lengthwise.errors import BadInput, require
from lengthwise.methods.slots import Slots
from lengthwise.models.anatomy import Anatomy, stack_anatomy
from lengthwise.models.attention_interface import register
from lengthwise.models.forward_checks import refuse_a_trace, refuse_another_implementation
from lengthwise.models.install import install
from lengthwise.models.patches import IMPLEMENTATION, Patches, value_before_patches
from lengthwise.models.state import LAYER, PATCHES
from lengthwise.models.train_length import T5_FAMILIES

# Where what is no module itself, as a pipeline of transformers or diffusers, keeps its model or its text encoders
HELD = ("model", "text_encoder", "text_encoder_2", "text_encoder_3")
OVERFLOWS = (
    "T5 was trained in bfloat16, whose numbers reach further than float16's: a forward that overflows will raise. "
    "For that each one waits for the GPU (check_finite=False does not); bfloat16 costs the same"
)


class Acceleration:
    """What `accelerate` returns. As a context manager it restores the model at its end."""

    def __init__(self, model: Any, patches: Sequence[Patches]) -> None:
        self._model, self._patches = model, patches

    def __enter__(self) -> Any:
        ended = "this acceleration has ended; call `accelerate` again"
        require(all(patches.active for patches in self._patches), ended)
        return self._model

    def __exit__(self, *_: Any) -> None:
        _undo(self._patches)


@typed
def accelerate(model: Any, *, implementation: str = "auto", check_finite: bool = True) -> Acceleration:
    """Let every T5 inside `model` compute its attention by lengthwise's kernels, until `restore(model)`.

    A model that is accelerated already stays so. `save_pretrained`, copies and pickles are of the plain model. `check_finite`
    raises BadInput when a float16 stack's output overflows; a compiled graph is not asked.
    """
    known = f"no attention implementation {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}"
    require(implementation in IMPLEMENTATIONS, known)
    made: list[Patches] = []
    try:
        for stack in t5_stacks(model):
            if _accelerating(stack) is None:
                extended = "this model is extended already; accelerate it first, and extend it then"
                require(PATCHES.on(stack) is None, extended)
                made.append(Patches(stack, accelerates=True))
                _put_on(made[-1], stack, implementation, check_finite)
    except BaseException:
        _undo(made)
        raise
    if check_finite and any(next(patches.stack.parameters()).dtype == torch.float16 for patches in made):
        warnings.warn(OVERFLOWS, stacklevel=3)
    return Acceleration(model, made)


def restore(model: Any) -> None:
    """End `accelerate`; a model that is not accelerated stays as it is."""
    _undo([patches for stack in t5_stacks(model) if (patches := _accelerating(stack)) is not None])


def t5_stacks(model: Any) -> list[nn.Module]:
    """Encoders and decoders of all T5s that a model or a pipeline holds."""
    holders = [model] if isinstance(model, nn.Module) else [getattr(model, name, None) for name in HELD]
    modules = [module for holder in holders if isinstance(holder, nn.Module) for module in holder.modules()]
    stacks = [module for module in modules if _is_stack(module)]
    families = ", ".join(T5_FAMILIES)
    if not stacks:
        raise BadInput(
            f"{type(model).__name__} holds no T5 ({families}), whose attention accelerate is for; use extend instead"
        )
    return list(dict.fromkeys(stacks))


def _is_stack(module: nn.Module) -> bool:
    family = getattr(getattr(module, "config", None), "model_type", None)
    return family in T5_FAMILIES and isinstance(getattr(module, "block", None), nn.ModuleList)


def _accelerating(stack: nn.Module) -> Patches | None:
    return next((patches for patches in PATCHES.on(stack) or [] if patches.accelerates), None)


def _put_on(patches: Patches, stack: nn.Module, implementation: str, check_finite: bool) -> None:
    anatomy = stack_anatomy(stack, str(stack.config.model_type))  # type: ignore[union-attr]
    patches.put_on()
    register(patches)
    install(patches, stack, anatomy, Slots(), implementation, exact=False)
    _let_copies_be_plain(patches, anatomy)
    patches.add_hook(stack.register_forward_pre_hook, partial(_before_forward, anatomy, anatomy.configs))
    if check_finite:
        patches.add_hook(stack.register_forward_hook, partial(_refuse_overflow, patches))


def _before_forward(anatomy: Anatomy, configs: list[Any], *_: Any) -> None:
    """Refuse a trace, or an attention that was set meanwhile; forget callers' masks that the last forward has read."""
    layer = LAYER.on(anatomy.layers[0])
    if layer is not None and not torch.compiler.is_compiling():
        refuse_another_implementation(configs, "accelerated; `restore` it")
        refuse_a_trace()
        layer.read.clear()


def _refuse_overflow(patches: Patches, stack: nn.Module, _: Any, output: Any) -> None:
    states = output[0]
    if torch.compiler.is_compiling() or not patches.active or not isinstance(states, Tensor) or states.dtype != torch.float16:
        return
    if not bool(torch.isfinite(states).all()):
        what = "decoder" if getattr(stack, "is_decoder", False) else "encoder"
        raise BadInput(
            f"this T5's {what} overflows in float16; load it in bfloat16 or float32 (check_finite=False lets it pass)"
        )


def _let_copies_be_plain(patches: Patches, anatomy: Anatomy) -> None:
    """Deep copies and pickles hold what stood there before."""

    def let(owner: Any) -> None:
        def reduce(_: Any) -> Any:
            return copyreg.__newobj__, (type(owner),), patches.before(owner.__dict__)  # type: ignore[attr-defined]

        patches.set(owner.__dict__, "__reduce_ex__", reduce)

    for owner in (anatomy.stack, *anatomy.layers):
        let(owner)
    for config in anatomy.configs:
        # Not in the config: transformers writes all that it holds into config.json, and several models may share it
        patches.set_shared(copyreg.dispatch_table, type(config), _plain_config)


def _plain_config(config: Any) -> Any:
    plain = {**vars(config), IMPLEMENTATION: value_before_patches(vars(config), IMPLEMENTATION)}
    return copyreg.__newobj__, (type(config),), plain  # type: ignore[attr-defined]


def _undo(made: Sequence[Patches]) -> None:
    for patches in made:
        inner = [other for other in PATCHES.on(patches.stack) or [] if not other.accelerates]
        require(not inner, "this model is extended; leave `extend` first, and restore it then")
    for patches in reversed(made):
        patches.undo()
