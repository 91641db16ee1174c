"""Install a method on a loaded model, run, restore the model bit for bit.

    with lengthwise.extend(model, "infoscale"):
        model.generate(...)

Nesting adds methods, as `+` in a spec does. Nothing of transformers is changed outside the `with`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from lengthwise.errors import BadInput, require
from lengthwise.methods.spec import methods_of
from lengthwise.models.anatomy import Anatomy, anatomy_of
from lengthwise.models.cache import admitted
from lengthwise.models.changes import Changes
from lengthwise.models.fingerprint import check_fingerprint
from lengthwise.models.rotary import BUFFER, Rotary, rotary_of, unmoved
from lengthwise.models.seam import LAYER, NAME, Layer, Observer, no_dense_bias, registered
from lengthwise.slots import Slots, name_of

Method = str | object | Sequence[object]


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
    """`method` is a spec, a method object, or several. `force` accepts what was not made for this model."""
    anatomy = anatomy_of(model, train_length)
    slots = slots_of(anatomy, method, force)
    _refuse_unreachable(anatomy)
    rotary = _rotary(anatomy, slots)
    changes = Changes()
    with registered(), changes.in_force(model):
        unrotated = _install_rotation(changes, slots, rotary, anatomy.train_length)
        _install(changes, anatomy, slots, implementation, observer, rotary if unrotated else None)
        _watch_caches(changes, anatomy, slots)
        _prove_reached(changes, anatomy)
        yield model


def slots_of(anatomy: Anatomy, method: Method, force: bool = False) -> Slots:
    """The slots that `method` fills, after checking that it was made for this model."""
    methods = _listed(anatomy, method)
    for one in methods:
        if (fingerprint := getattr(one, "model", None)) and not force:
            check_fingerprint(anatomy, fingerprint)
    slots = Slots.of(methods)
    if slots.similarity is not None and not force:
        own = getattr(anatomy.stack.config, "cos_scale", None)
        why = "was not trained with it" if own is None else f"has its own already (scale {own:g})"
        raise BadInput(
            f"{name_of(slots.similarity)} replaces the similarity of queries and keys, and this {anatomy.family} model {why}; "
            "train one with it, or pass force=True (--force) to see what it does"
        )
    if slots.bias is not None and any(owner is not None for owner in anatomy.bias_owners):
        raise BadInput(f"{name_of(slots.bias)} fills the bias slot, and so does the learned bias of this {anatomy.family}")
    if hasattr(slots.visible, "segments"):
        what = f"{name_of(slots.visible)} splits the heads of a causal model"
        require(anatomy.causal, f"{what}, and this {anatomy.family} reads in both directions; leave it out")
        require(anatomy.heads > 1, f"{what}, and this {anatomy.family} has one; leave it out")
    return slots


def _rotary(anatomy: Anatomy, slots: Slots) -> Rotary | None:
    """Of models that have one: a similarity must meet queries and keys before they are rotated."""
    if slots.rotation is not None:
        return rotary_of(anatomy, name_of(slots.rotation))
    if slots.similarity is not None and hasattr(anatomy.stack, "rotary_emb"):
        outer: Layer | None = anatomy.layers[0].__dict__.get(LAYER)
        if outer is not None and outer.slots.rotation is not None:
            both = f"{name_of(outer.slots.rotation)} and {name_of(slots.similarity)}"
            raise BadInput(f"{both} must meet in one spec, joined by +: the keys of the first are rotated already")
        return rotary_of(anatomy, name_of(slots.similarity))
    return None


def _install_rotation(changes: Changes, slots: Slots, rotary: Rotary | None, train_length: int) -> bool:
    """Puts other frequencies in the place of the model's own; True where queries and keys must stay unrotated instead."""
    method = slots.rotation
    if rotary is None:
        return False
    if slots.similarity is not None or hasattr(method, "distances") or getattr(method, "dynamic", False):
        changes.set(rotary.module.__dict__, "forward", unmoved(rotary))
        return True
    changes.set(rotary.module._buffers, BUFFER, method.frequencies(rotary.own, train_length))
    return False


def _watch_caches(changes: Changes, anatomy: Anatomy, slots: Slots) -> None:
    """Keys of a cache stand where the method put them: one filled under another method is refused."""
    holder = slots.rotation if slots.rotation is not None else slots.similarity
    if holder is None:
        return
    # A rolling cache puts its sinks just before its window: one that keeps true distances needs all keys
    rolls = hasattr(holder, "sinks") and slots.visible is holder and getattr(holder, "reindex", True)
    rolling = holder if rolls else None

    def check(_: nn.Module, __: Any, kwargs: dict[str, Any]) -> None:
        if changes.out:
            return
        mask = kwargs.get("attention_mask")
        padded = isinstance(mask, Tensor) and not bool(mask.bool().all())
        admitted(kwargs.get("past_key_values"), holder, rolling, padded)

    changes.hook(anatomy.stack.register_forward_pre_hook(check, with_kwargs=True))


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


def _install(
    changes: Changes,
    anatomy: Anatomy,
    slots: Slots,
    implementation: str,
    observer: Observer | None,
    rotary: Rotary | None,
) -> None:
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
            rotary=rotary if rotary is not None or outer is None else outer.rotary,
        )
        changes.set(module.__dict__, LAYER, layer)
        if owner is module and "compute_bias" not in module.__dict__:
            changes.set(module.__dict__, "compute_bias", no_dense_bias(module))
    configs: dict[int, Any] = {id(m.config): m.config for m in (anatomy.stack, *anatomy.layers) if hasattr(m, "config")}
    for config in configs.values():
        # The private attribute: the public setter would also write into sub-configs
        changes.set(config.__dict__, "_attn_implementation_internal", NAME)


def _prove_reached(changes: Changes, anatomy: Anatomy) -> None:
    """Every forward of the stack must have gone through our function in every layer, or its result is withheld."""

    def start(*_: Any) -> None:
        for module in [] if changes.out else anatomy.layers:
            module.__dict__[LAYER].visits = 0

    def finish(*_: Any) -> None:
        if changes.out:
            return
        missed = [i for i, module in enumerate(anatomy.layers) if module.__dict__[LAYER].visits == 0]
        if missed:
            name = type(anatomy.layers[missed[0]]).__name__
            raise BadInput(
                f"{len(missed)} of {len(anatomy.layers)} attention layers of {type(anatomy.stack).__name__} were not reached "
                f"(the first is layer {missed[0]}, {name}): this family computes attention outside transformers' "
                "AttentionInterface and cannot be extended"
            )

    changes.hook(anatomy.stack.register_forward_pre_hook(start))
    changes.hook(anatomy.stack.register_forward_hook(finish))
