"""The five places of the one equation that a method can fill, and what happens when two methods meet.

    logit(i, j) = g(n) * (similarity(rotate(q_i), rotate(k_j)) + bias(p_j - p_i)),   j in visible(i)

A method fills a slot by having that slot's function; nothing else distinguishes methods. Temperatures of several methods
multiply; any other slot claimed twice is an error that names both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from lengthwise.errors import BadInput

# slot -> the functions of which any claims it
CLAIMS = {
    "temperature": ("inverse_temperature",),
    "similarity": ("similarity",),
    "rotation": ("frequencies", "distances"),
    "bias": ("distance_bias",),
    "visible": ("narrow", "segments"),
}


@runtime_checkable
class Temperature(Protocol):
    """Fills the temperature slot: g = 1/tau, which multiplies the whole logit, bias included."""

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        """n [..., rows] -> g; [batch, 1, rows] may become [batch, heads, rows] where every head has its own."""
        ...


@dataclass(frozen=True)
class Slots:
    """Which method fills which slot of one model's equation."""

    temperature: tuple[Temperature, ...] = ()
    similarity: Any = None
    rotation: Any = None
    bias: Any = None
    visible: Any = None

    @classmethod
    def of(cls, methods: Iterable[object]) -> Slots:
        """The slots of several methods together."""
        slots = cls()
        for method in methods:
            slots = slots.claimed_by(method)
        return slots

    def claimed_by(self, method: Any) -> Slots:
        claims = [slot for slot, functions in CLAIMS.items() if any(hasattr(method, function) for function in functions)]
        if not claims:
            known = ", ".join(function for functions in CLAIMS.values() for function in functions)
            raise BadInput(f"{name_of(method)} fills no slot: a method needs one of {known}")
        filled: dict[str, Any] = dict.fromkeys(claims, method)
        for slot in claims:
            if slot == "temperature":
                filled[slot] = (*self.temperature, method)
            elif (holder := getattr(self, slot)) is not None:
                raise _claimed_twice(slot, holder, method)
        return replace(self, **filled)

    def and_(self, other: Slots) -> Slots:
        """Both together, as if their methods had been named in one spec."""
        filled: dict[str, Any] = {"temperature": self.temperature + other.temperature}
        for slot in ("similarity", "rotation", "bias", "visible"):
            ours, theirs = getattr(self, slot), getattr(other, slot)
            if ours is not None and theirs is not None:
                raise _claimed_twice(slot, ours, theirs)
            filled[slot] = ours if theirs is None else theirs
        return replace(self, **filled)

    @property
    def filled(self) -> tuple[str, ...]:
        return tuple(slot for slot in CLAIMS if getattr(self, slot))

    def inverse_temperature(self, visible: Tensor, layer: int) -> Tensor | None:
        """The product of all laws at n = `visible`, [batch, 1, rows]; None where no law is set."""
        product: Tensor | None = None
        for law in self.temperature:
            g = law.inverse_temperature(visible, layer)
            product = g if product is None else product * g
        return product

    def leaves_alone(self, length: int, layer: int) -> bool:
        """True when rows that see up to `length` keys keep exactly the model's own equation."""
        others = (getattr(self, slot) for slot in CLAIMS if slot != "temperature")
        if any(method is not None and not method.leaves_alone(length) for method in others):
            return False
        g = self.inverse_temperature(torch.arange(1, length + 1)[None, None], layer)
        return g is None or bool((g == 1).all())


def _claimed_twice(slot: str, first: object, second: object) -> BadInput:
    return BadInput(f"{name_of(first)} and {name_of(second)} both fill the {slot} slot; leave one of them out")


def name_of(method: object) -> str:
    return str(getattr(method, "name", type(method).__name__))
