"""Install a method on a loaded model, run, restore the model bit for bit.

    with lengthwise.extend(model, "infoscale"):
        model.generate(...)

Nesting adds methods, as `+` in a spec does. Nothing of transformers is changed outside the `with`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from lengthwise.errors import BadInput
from lengthwise.methods.spec import methods_of
from lengthwise.models.anatomy import Anatomy, anatomy_of
from lengthwise.models.fingerprint import check_fingerprint
from lengthwise.models.seam import LAYER, NAME, Layer, Observer, no_dense_bias, registered
from lengthwise.slots import Slots

Method = str | object | Sequence[object]

# Slots that this version can install on a loaded model
INSTALLABLE = ("temperature",)


@contextmanager
def extend(
    model: nn.Module,
    method: Method = "none",
    *,
    train_length: int | None = None,
    implementation: str = "auto",
    observer: Observer | None = None,
    force: bool = False,
) -> Iterator[nn.Module]:
    """`method` is a spec, a method object, or several. `force` accepts an alignment made for another model."""
    anatomy = anatomy_of(model, train_length)
    slots = slots_of(anatomy, method, force)
    _refuse_unreachable(anatomy)
    with ExitStack() as undo:
        undo.enter_context(registered())
        _install(undo, anatomy, slots, implementation, observer)
        _prove_reached(undo, anatomy)
        yield model


def slots_of(anatomy: Anatomy, method: Method, force: bool = False) -> Slots:
    """The slots that `method` fills, after checking that it was made for this model."""
    methods = _listed(anatomy, method)
    for one in methods:
        if (fingerprint := getattr(one, "model", None)) and not force:
            check_fingerprint(anatomy, fingerprint)
    slots = Slots.of(methods)
    for slot in slots.filled:
        if slot not in INSTALLABLE:
            raise BadInput(f"the {slot} slot of a loaded {anatomy.family} model cannot be filled by this version of lengthwise")
    return slots


def _listed(anatomy: Anatomy, method: Method) -> list[object]:
    if isinstance(method, str):
        return methods_of(method, anatomy.facts)
    if isinstance(method, (list, tuple)):
        return [one for part in method for one in _listed(anatomy, part)]
    return [method]


def _refuse_unreachable(anatomy: Anatomy) -> None:
    can_set = getattr(anatomy.stack, "_can_set_attn_implementation", None)
    if can_set is not None and not can_set():
        raise BadInput(
            f"{type(anatomy.stack).__name__} computes attention itself instead of through transformers' AttentionInterface, "
            f"so no method can reach its {len(anatomy.layers)} layers"
        )


def _install(undo: ExitStack, anatomy: Anatomy, slots: Slots, implementation: str, observer: Observer | None) -> None:
    for index, (module, owner) in enumerate(zip(anatomy.layers, anatomy.bias_owners, strict=True)):
        outer: Layer | None = module.__dict__.get(LAYER)
        config: Any = getattr(module, "config", anatomy.stack.config)
        layer = Layer(
            index=index,
            slots=slots if outer is None else outer.slots.and_(slots),
            stock=outer.stock if outer is not None else config._attn_implementation or "eager",
            train_length=anatomy.train_length,
            bias_owner=owner,
            implementation=implementation,
            observer=observer if observer is not None or outer is None else outer.observer,
        )
        _set(undo, module.__dict__, LAYER, layer)
        if owner is module and "compute_bias" not in module.__dict__:
            _set(undo, module.__dict__, "compute_bias", no_dense_bias(module))
    configs: dict[int, Any] = {id(m.config): m.config for m in (anatomy.stack, *anatomy.layers) if hasattr(m, "config")}
    for config in configs.values():
        # The private attribute: the public setter would also write into sub-configs
        _set(undo, config.__dict__, "_attn_implementation_internal", NAME)


def _set(undo: ExitStack, owner: dict[str, Any], key: str, value: Any) -> None:
    if key in owner:
        undo.callback(owner.__setitem__, key, owner[key])
    else:
        undo.callback(owner.pop, key)
    owner[key] = value


def _prove_reached(undo: ExitStack, anatomy: Anatomy) -> None:
    """Every forward of the stack must have gone through our function in every layer, or its result is withheld."""

    def start(*_: Any) -> None:
        for module in anatomy.layers:
            module.__dict__[LAYER].visits = 0

    def finish(*_: Any) -> None:
        missed = [i for i, module in enumerate(anatomy.layers) if module.__dict__[LAYER].visits == 0]
        if missed:
            name = type(anatomy.layers[missed[0]]).__name__
            raise BadInput(
                f"{len(missed)} of {len(anatomy.layers)} attention layers of {type(anatomy.stack).__name__} were not reached "
                f"(the first is layer {missed[0]}, {name}): this family computes attention outside transformers' "
                "AttentionInterface and cannot be extended"
            )

    undo.callback(anatomy.stack.register_forward_pre_hook(start).remove)
    undo.callback(anatomy.stack.register_forward_hook(finish).remove)
