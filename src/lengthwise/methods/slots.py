"""The five places of the one equation that a method can fill, and what happens when two methods meet.

    logit(i, j) = g(n) * (similarity(rotate(q_i), rotate(k_j)) + bias(p_j - p_i)),   j in visible(i)

A method fills a slot by having that slot's function; nothing else distinguishes methods. Temperatures of several methods
multiply; any other slot claimed twice is an error that names both. A temperature is a law of n, or adaptive: then it follows
the entropy that the row has under all laws of n together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from lengthwise.errors import BadInput

# slot -> the functions of which any claims it
CLAIMS = {
    "temperature": ("inverse_temperature", "adaptive_sharpness"),
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


@runtime_checkable
class AdaptiveTemperature(Protocol):
    """Fills the temperature slot as well, with a g that follows the entropy of the row."""

    def adaptive_sharpness(self, entropy: Tensor, layer: int = 0) -> Tensor:
        """H [batch, heads, rows], in nats -> g of the same shape."""
        ...

    def leaves_alone(self, length: int) -> bool:
        """True when g is 1 for every row of up to `length` keys, whatever their logits."""
        ...


@dataclass(frozen=True)
class Slots:
    """Which method fills which slot of one model's equation."""

    temperature: tuple[Any, ...] = ()  # of Temperature or AdaptiveTemperature
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
        own: dict[str, Any] = {slot: (method,) if slot == "temperature" else method for slot in claims}
        return self.and_(Slots(**own))

    def and_(self, other: Slots) -> Slots:
        """Both together, as if their methods had been named in one spec."""
        filled: dict[str, Any] = {"temperature": self.temperature + other.temperature}
        for slot in ("similarity", "rotation", "bias", "visible"):
            ours, theirs = getattr(self, slot), getattr(other, slot)
            if ours is not None and theirs is not None:
                names = f"{name_of(ours)} and {name_of(theirs)}"
                raise BadInput(f"{names} both fill the {slot} slot; leave one of them out")
            filled[slot] = ours if theirs is None else theirs
        return replace(self, **filled)

    @property
    def filled(self) -> tuple[str, ...]:
        return tuple(slot for slot in CLAIMS if getattr(self, slot))

    @property
    def names(self) -> list[str]:
        """Of the methods, by slot."""
        others = (getattr(self, slot) for slot in CLAIMS if slot != "temperature")
        return [name_of(method) for method in (*self.temperature, *others) if method is not None]

    @property
    def laws(self) -> tuple[Temperature, ...]:
        """The temperatures that are laws of n."""
        return tuple(method for method in self.temperature if hasattr(method, "inverse_temperature"))

    @property
    def adaptive(self) -> tuple[AdaptiveTemperature, ...]:
        """The temperatures that follow a row's entropy."""
        return tuple(method for method in self.temperature if hasattr(method, "adaptive_sharpness"))

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
                f"{name_of(self.adaptive[0])} follows the entropy of every row, so it has no one temperature for a length; "
                "leave it out"
            )
        # Of one entropy, so that their order does not matter
        h = entropy(g)
        sharpness = torch.stack([method.adaptive_sharpness(h, layer) for method in self.adaptive]).prod(0)
        return sharpness if g is None else g * sharpness

    def refuse_adaptive(self) -> None:
        """Where another temperature is about to be sought."""
        if self.adaptive:
            name = name_of(self.adaptive[0])
            raise BadInput(f"{name} answers to every other temperature, so none can be calibrated on top of it; leave it out")

    def leaves_alone(self, length: int, layer: int) -> bool:
        """True when rows that see up to `length` keys keep exactly the model's own equation."""
        others = (getattr(self, slot) for slot in CLAIMS if slot != "temperature")
        if any(method is not None and not method.leaves_alone(length) for method in (*others, *self.adaptive)):
            return False
        g = replace(self, temperature=self.laws).inverse_temperature(torch.arange(1, length + 1)[None, None], layer)
        return g is None or bool((g == 1).all())


def name_of(method: object) -> str:
    return str(getattr(method, "name", type(method).__name__))
