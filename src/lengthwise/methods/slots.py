"""The five places of the one equation that a method can fill, and what happens when two methods meet.

    logit(i, j) = g(n) * (similarity(rotate(q_i), rotate(k_j)) + bias(p_j - p_i)),   j in visible(i)

A method fills a slot by having that slot's function (base.py). Temperatures of several methods multiply; any other slot claimed
twice is an error that names both. A temperature is a law of n, or adaptive: then it follows the entropy that the row has under
all laws of n together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from lengthwise.common.kept import kept
from lengthwise.errors import BadInput, require
from lengthwise.methods.base import (
    AdaptiveTemperature,
    Bias,
    FrequencyRotation,
    NarrowedVisibility,
    PartsRotation,
    Rotation,
    SegmentedVisibility,
    Similarity,
    SinksAndWindow,
    Temperature,
    Visibility,
    layers_agree,
    leaves_alone,
    method_name,
    sinks_and_window,
)

# slot -> the functions of which any claims it
CLAIMS = {
    "temperature": ("inverse_temperature", "adaptive_sharpness"),
    "similarity": ("similarity",),
    "rotation": ("frequencies", "distances"),
    "bias": ("distance_bias",),
    "visible": ("narrow", "segments"),
}


def claimed_slots(method: object) -> list[str]:
    """Names of the slots that a method, or the class of one, fills."""
    return [slot for slot, functions in CLAIMS.items() if any(hasattr(method, function) for function in functions)]


@dataclass(frozen=True)
class Slots:
    """Which method fills which slot of one model's equation."""

    temperature: tuple[Temperature | AdaptiveTemperature, ...] = ()
    similarity: Similarity | None = None
    rotation: Rotation | None = None
    bias: Bias | None = None
    visible: Visibility | None = None
    # Values of the `kept` properties
    facts: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Find out now what every layer asks at every token: a graph that is traced must not write it."""
        for name in ("laws", "layers_agree", "adaptive", "frequencies", "parts", "narrowed", "segmented"):
            getattr(self, name)

    @classmethod
    def of(cls, methods: Iterable[object]) -> Slots:
        """The slots of several methods together."""
        slots = cls()
        for method in methods:
            claims = claimed_slots(method)
            known = ", ".join(function for functions in CLAIMS.values() for function in functions)
            require(bool(claims), f"{method_name(method)} fills no slot: a method needs one of {known}")
            filled: dict[str, Any] = {slot: (method,) if slot == "temperature" else method for slot in claims}
            slots = slots.joined_with(cls(**filled))
        return slots

    def joined_with(self, other: Slots) -> Slots:
        """Both together, as if their methods had been named in one spec."""
        filled: dict[str, Any] = {"temperature": self.temperature + other.temperature}
        for slot in ("similarity", "rotation", "bias", "visible"):
            ours, theirs = getattr(self, slot), getattr(other, slot)
            names = f"{method_name(ours)} and {method_name(theirs)}"
            require(ours is None or theirs is None, f"{names} both fill the {slot} slot; leave one of them out")
            filled[slot] = ours if theirs is None else theirs
        return replace(self, **filled)

    def without(self, method: object) -> Slots:
        """The same slots but for those that one method fills."""
        others: dict[str, Any] = {
            slot: None for slot in ("similarity", "rotation", "bias", "visible") if getattr(self, slot) is method
        }
        return replace(self, temperature=tuple(law for law in self.temperature if law is not method), **others)

    @property
    def filled(self) -> tuple[str, ...]:
        """Names of the slots that a method fills, in the order of the equation."""
        return tuple(slot for slot in CLAIMS if getattr(self, slot))

    @property
    def names(self) -> list[str]:
        """Names of the methods, in the order of the equation; once where a method fills several slots."""
        return [*{id(method): method_name(method) for method in (*self.temperature, *self._others)}.values()]

    @property
    def _others(self) -> tuple[object, ...]:
        """The methods in slots other than the temperature."""
        return tuple(m for m in (self.similarity, self.rotation, self.bias, self.visible) if m is not None)

    @kept
    def laws(self) -> tuple[Temperature, ...]:
        """The temperatures that are laws of n."""
        return tuple(method for method in self.temperature if isinstance(method, Temperature))

    @kept
    def layers_agree(self) -> bool:
        """Whether all laws of n are the same in all layers."""
        return all(layers_agree(law) for law in self.laws)

    @kept
    def adaptive(self) -> tuple[AdaptiveTemperature, ...]:
        """The temperatures that follow a row's entropy."""
        return tuple(method for method in self.temperature if isinstance(method, AdaptiveTemperature))

    @kept
    def frequencies(self) -> FrequencyRotation | None:
        """The rotation, where it changes frequencies."""
        return self.rotation if isinstance(self.rotation, FrequencyRotation) else None

    @kept
    def parts(self) -> PartsRotation | None:
        """The rotation, where it places the keys of a row in parts."""
        return self.rotation if isinstance(self.rotation, PartsRotation) else None

    @kept
    def narrowed(self) -> NarrowedVisibility | None:
        """The method that hides keys from rows, if there is one."""
        return self.visible if isinstance(self.visible, NarrowedVisibility) else None

    @kept
    def segmented(self) -> SegmentedVisibility | None:
        """The method that cuts sequences into segments, if there is one."""
        return self.visible if isinstance(self.visible, SegmentedVisibility) else None

    @kept
    def placing(self) -> str:
        """The methods that decide how keys are cached, as errors name them; empty where the model itself does."""
        return " and ".join(repr(method) for method in (self.rotation, self.similarity) if method is not None)

    @kept
    def rolling(self) -> SinksAndWindow | None:
        """The keys that a cache has to keep, where one method says both which keys rows see and at what distance."""
        method: object = self.rotation
        keys = sinks_and_window(method) if self.visible is method else None
        return keys if keys is not None and keys.rolls else None

    def inverse_temperature(
        self,
        visible: Tensor,
        layer: int,
        entropy: Callable[[Tensor | None], Tensor] | None = None,
        heads: slice = slice(None),
    ) -> Tensor | None:
        """The product of all temperatures at n = `visible`, [batch, 1, rows]; None where there is none.

        `entropy` reads that of every row, [batch, heads, rows], at a given g; without it adaptive temperatures are refused.
        `heads` are those whose rows these are.
        """
        product: Tensor | None = None
        for law in self.laws:
            g = law.inverse_temperature(visible, layer)
            product = g if product is None else product * g
        if product is not None and product.shape[1] > 1:
            product = product[:, heads]
        return self._adapted(product, layer, entropy) if self.adaptive else product

    def _adapted(self, g: Tensor | None, layer: int, entropy: Callable[[Tensor | None], Tensor] | None) -> Tensor:
        if entropy is None:
            raise BadInput(
                f"{method_name(self.adaptive[0])} follows the entropy of every row, so it has no one temperature for a length; "
                "leave it out"
            )
        # All of them get the same entropy, so that their order does not matter
        h = entropy(g)
        sharpness = torch.stack([method.adaptive_sharpness(h, layer) for method in self.adaptive]).prod(0)
        return sharpness if g is None else g * sharpness

    def refuse_adaptive(self) -> None:
        """Raise BadInput where an adaptive temperature would answer to the temperature that a caller is about to search."""
        if self.adaptive:
            name = method_name(self.adaptive[0])
            raise BadInput(f"{name} answers to every other temperature, so none can be calibrated on top of it; leave it out")

    def leaves_alone(self, length: int, layer: int) -> bool:
        """True when rows that see up to `length` keys keep exactly the model's own equation."""
        if not all(leaves_alone(method, length) for method in (*self._others, *self.adaptive)):
            return False
        # Every length as a sequence of its own: a law may go by the widest row
        lengths = torch.arange(1, length + 1)[:, None, None]
        g = replace(self, temperature=self.laws).inverse_temperature(lengths, layer)
        # One that is being trained has to be computed to have a gradient
        return g is None or (not g.requires_grad and bool((g == 1).all()))
