"""Install a method on a loaded model, run, restore the model bit for bit.

    with lengthwise.extend(model, "infoscale"):
        model.generate(...)

Nesting adds methods, as `+` in a spec does. Nothing of transformers is changed outside the `with`.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from typing import Any

from torch import Tensor, nn

from lengthwise.errors import BadInput, require
from lengthwise.methods.base import check_fits, fingerprint_of, follows_length, method_name, sinks_and_window
from lengthwise.methods.slots import Slots
from lengthwise.methods.spec import methods_of
from lengthwise.models.anatomy import Anatomy, anatomy_of, attention_layers, unwrapped
from lengthwise.models.attention_interface import NAME, no_dense_bias, registered
from lengthwise.models.cache import admit
from lengthwise.models.fingerprint import check_fingerprint
from lengthwise.models.layer import Layer, Observer, active_slots
from lengthwise.models.masks import ForwardMask, real_tokens
from lengthwise.models.patches import IMPLEMENTATION, Patches, suspended, value_before_patches
from lengthwise.models.position_ids import IN_A_CACHE, leaps
from lengthwise.models.rotary import FREQUENCIES, Rotary, length_dependent_state, no_rotation, rotary_of
from lengthwise.models.rotary_proof import rotated_parts
from lengthwise.models.state import LAYER

Method = str | object | Sequence[object]


class Extension(ContextDecorator):
    """What `extend` returns: nothing is done to the model before it is entered. It may be entered again."""

    def __init__(self, make: Callable[[], AbstractContextManager[nn.Module]]) -> None:
        self._make, self._entered = make, False
        self._open: list[AbstractContextManager[nn.Module]] = []

    def __enter__(self) -> nn.Module:
        self._entered = True
        inner = self._make()
        model = inner.__enter__()
        self._open.append(inner)
        return model

    def __exit__(self, *raised: Any) -> bool | None:
        return self._open.pop().__exit__(*raised)

    def __del__(self) -> None:
        if not self._entered:
            warnings.warn("extend(...) does nothing by itself: write `with lengthwise.extend(...):`", stacklevel=2)


def extend(
    model: nn.Module,
    method: Method = "none",
    *,
    train_length: int | None = None,
    implementation: str = "auto",
    observer: Observer | None = None,
    force: bool = False,
) -> Extension:
    """`method` is a spec, a method object, or several. `force` accepts what was not made for this model.

    Two threads may extend two models at the same time, but not run one. A backward that computes layers again (gradient
    checkpointing) belongs inside the `with`.
    """
    return Extension(lambda: _extended(model, method, train_length, implementation, observer, force))


@contextmanager
def _extended(
    model: nn.Module,
    method: Method,
    train_length: int | None,
    implementation: str,
    observer: Observer | None,
    force: bool,
) -> Iterator[nn.Module]:
    anatomy = anatomy_of(model, train_length)
    slots = slots_of(anatomy, method, force)
    _refuse_unreachable(anatomy)
    _refuse_one_config_for_two(model, anatomy)
    rotary = _rotary(anatomy, slots)
    patches = Patches()
    with registered(), patches.on(model):
        for owner, key in length_dependent_state(anatomy):
            patches.set(owner, key, owner[key])
        parts = _install_rotation(patches, model, anatomy, slots, rotary)
        unrotated = parts is not None
        _install(patches, anatomy, slots, implementation, observer, rotary if unrotated else None, parts or {})
        _prove_reached(patches, anatomy)
        _watch_caches(patches, anatomy, unrotated)
        _watch_lengths(patches, anatomy, slots)
        yield model


def slots_of(anatomy: Anatomy, method: Method, force: bool = False) -> Slots:
    """The slots that `method` fills, after checking that it was made for this model."""
    methods = _listed(anatomy, method)
    for one in methods:
        if (fingerprint := fingerprint_of(one)) and not force:
            check_fingerprint(anatomy, fingerprint)
        check_fits(one, len(anatomy.layers), anatomy.heads)
    slots = Slots.of(methods)
    if slots.similarity is not None and not force:
        own = getattr(anatomy.stack.config, "cos_scale", None)
        why = "was not trained with it" if own is None else f"has its own already (scale {own:g})"
        raise BadInput(
            f"{method_name(slots.similarity)} replaces the similarity of queries and keys, and this {anatomy.family} model "
            f"{why}; train one with it, or pass force=True (--force of evaluate, reach and bake) to see what it does"
        )
    if slots.bias is not None and any(owner is not None for owner in anatomy.bias_owners):
        raise BadInput(f"{method_name(slots.bias)} fills the bias slot, and so does the learned bias of this {anatomy.family}")
    if slots.segmented is not None:
        what = f"{method_name(slots.segmented)} splits the heads of a causal model"
        require(anatomy.causal, f"{what}, and this {anatomy.family} reads in both directions; leave it out")
        require(anatomy.heads > 1, f"{what}, and this {anatomy.family} has one; leave it out")
    return slots


def _rotary(anatomy: Anatomy, slots: Slots) -> Rotary | None:
    """Of models that have one: a similarity must meet queries and keys before they are rotated."""
    if slots.rotation is not None:
        return rotary_of(anatomy, method_name(slots.rotation))
    if slots.similarity is not None and hasattr(anatomy.stack, "rotary_emb"):
        outer = active_slots(anatomy)
        if outer is not None and outer.rotation is not None:
            both = f"{method_name(outer.rotation)} and {method_name(slots.similarity)}"
            raise BadInput(f"{both} must meet in one spec, joined by +: the keys of the first are rotated already")
        return rotary_of(anatomy, method_name(slots.similarity))
    return None


def _install_rotation(
    patches: Patches, model: nn.Module, anatomy: Anatomy, slots: Slots, rotary: Rotary | None
) -> dict[nn.Module, str] | None:
    """Puts other frequencies in the place of the model's own; where queries and keys must stay unrotated instead, what of them
    each layer rotates."""
    method = slots.rotation
    if rotary is None:
        return None
    if slots.similarity is not None or slots.frequencies is None or slots.parts is not None or follows_length(method):
        with suspended(model):
            parts = rotated_parts(anatomy, rotary, method_name(slots.similarity if method is None else method))
        patches.set(rotary.module.__dict__, "forward", no_rotation(rotary))
        return parts
    patches.set(rotary.module._buffers, FREQUENCIES, slots.frequencies.frequencies(rotary.own, anatomy.train_length))
    return None


def _watch_caches(patches: Patches, anatomy: Anatomy, unrotated: bool) -> None:
    """Keys of a cache stand where the method put them: one filled under another method is refused."""

    def check(_: nn.Module, __: Any, kwargs: dict[str, Any]) -> None:
        cache, places, mask = (kwargs.get(name) for name in ("past_key_values", "position_ids", "attention_mask"))
        if not patches.active or cache is None:
            return
        # Read at every forward: an outer or an inner `extend` fills slots too
        slots = active_slots(anatomy)
        assert slots is not None
        admit(cache, slots, mask, patches.status)
        if unrotated and isinstance(places, Tensor):
            require(not leaps(places, real_tokens(mask, places.shape[-1])), IN_A_CACHE)

    patches.hook(anatomy.stack.register_forward_pre_hook(check, with_kwargs=True))


def _watch_lengths(patches: Patches, anatomy: Anatomy, slots: Slots) -> None:
    """Inputs that the model's own positions or its own window cannot hold are refused before they are read."""
    keys = sinks_and_window(slots.visible)
    wide = [window for window in anatomy.windows if window is not None and keys is not None and window > keys.window]
    sliding = min(wide, default=None)
    if anatomy.position_table is None and sliding is None:
        return

    def check(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        given = [kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args]
        read = next((one for one in given if isinstance(one, Tensor)), None)
        if not patches.active or read is None:
            return
        cache = kwargs.get("past_key_values")
        tokens = read.shape[1] + (0 if cache is None else cache.get_seq_length())
        refuse_past_the_table(anatomy, tokens, kwargs.get("position_ids"))
        if sliding is not None and tokens > sliding:
            raise BadInput(
                f"{method_name(slots.visible)} keeps the first keys of a sequence, and {type(anatomy.stack).__name__} has a "
                f"window of its own of {sliding} tokens, which has left them behind at {tokens}; leave it out, or take window"
            )

    patches.hook(anatomy.stack.register_forward_pre_hook(check, with_kwargs=True))


def refuse_past_the_table(anatomy: Anatomy, tokens: int, positions: Any = None) -> None:
    """Of models that have one. BART and OPT begin after an offset, RoBERTa after its padding index."""
    if (table := anatomy.position_table) is None:
        return
    held = table.num_embeddings - int(getattr(table, "offset", 0))
    room = held if table.padding_idx is None else held - table.padding_idx - 1
    if tokens <= room:
        return
    # Packed sequences begin again
    if isinstance(positions, Tensor) and int(positions.max()) < held:
        return
    raise BadInput(
        f"{type(anatomy.stack).__name__} has a table of {room} absolute positions and was given {tokens} tokens: "
        "no method takes a model past its table"
    )


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
    if hasattr(anatomy.layers[0], "prepare_dynamic_mask"):
        raise BadInput(f"{type(anatomy.layers[0]).__name__} makes a mask of its own out of its values: no method can reach it")
    if anatomy.has_unread_bias:
        raise BadInput(
            f"{type(anatomy.layers[0]).__name__} adds a position_bias of its own to the logits, which lengthwise reads of T5's "
            f"families only: {type(anatomy.stack).__name__} computes attention in a way that no method can reach"
        )


def _install(
    patches: Patches,
    anatomy: Anatomy,
    slots: Slots,
    implementation: str,
    observer: Observer | None,
    rotary: Rotary | None,
    parts: dict[nn.Module, str],
) -> None:
    read: dict[Any, ForwardMask] = {}
    for index, (module, owner) in enumerate(zip(anatomy.layers, anatomy.bias_owners, strict=True)):
        outer = LAYER.on(module)
        config: Any = getattr(module, "config", anatomy.stack.config)
        layer = Layer(
            index=index,
            slots=slots if outer is None else outer.slots.joined_with(slots),
            stock=outer.stock if outer is not None else value_before_patches(config.__dict__, IMPLEMENTATION) or "eager",
            train_length=anatomy.train_length,
            bias_owner=owner,
            implementation=implementation,
            observer=observer if observer is not None or outer is None else outer.observer,
            rotary=rotary if rotary is not None or outer is None else outer.rotary,
            rotated_part=parts.get(module, outer.rotated_part if outer is not None else "all of it"),
            read=read,
        )
        patches.set(module.__dict__, LAYER.key, layer)
        if owner is module and "compute_bias" not in module.__dict__:
            patches.set(module.__dict__, "compute_bias", no_dense_bias(module))
    for config in anatomy.configs:
        patches.set_shared(config.__dict__, IMPLEMENTATION, NAME)


def _refuse_one_config_for_two(model: nn.Module, anatomy: Anatomy) -> None:
    """BART's decoder reads the config of its encoder, and would be handed our function with it."""
    own, configs = set(anatomy.layers), {id(config) for config in anatomy.configs}
    for module in attention_layers(unwrapped(model), cross=True):
        if module not in own and id(getattr(module, "config", None)) in configs:
            raise BadInput(
                f"the encoder and the decoder of this {anatomy.family} share one config, which says how both of them compute "
                "attention: no method can reach the one without the other"
            )


def _prove_reached(patches: Patches, anatomy: Anatomy) -> None:
    """Every forward of the stack must have gone through our function in every layer, or its result is withheld."""
    running: set[int] = set()

    def layers() -> list[Layer]:
        return [layer for module in anatomy.layers if (layer := LAYER.on(module)) is not None]

    def start(stack: nn.Module, *_: Any) -> None:
        replica = getattr(stack, "_is_replica", False)
        if stack is not anatomy.stack and not replica:
            raise BadInput(f"this {type(stack).__name__} is a copy made while its model was extended; copy it outside `extend`")
        if not patches.active:
            return
        require(
            replica or running <= {threading.get_ident()},
            "two threads run this extended model at once; hold a lock around its forwards, or extend a copy for each",
        )
        running.add(threading.get_ident())
        layers()[0].read.clear()
        for layer in layers():
            layer.visits = 0

    def finish(*_: Any) -> None:
        if not patches.active:
            return
        layers()[0].read.clear()
        missed = [layer.index for layer in layers() if layer.visits == 0]
        if missed:
            name = type(anatomy.layers[missed[0]]).__name__
            raise BadInput(
                f"{len(missed)} of {len(anatomy.layers)} attention layers of {type(anatomy.stack).__name__} were not reached "
                f"(the first is layer {missed[0]}, {name}): this family computes attention outside transformers' "
                "AttentionInterface and cannot be extended"
            )

    def release(*_: Any) -> None:
        running.discard(threading.get_ident())

    patches.hook(anatomy.stack.register_forward_pre_hook(start))
    patches.hook(anatomy.stack.register_forward_hook(finish))
    # After a failed forward, too
    patches.hook(anatomy.stack.register_forward_hook(release, always_call=True))
