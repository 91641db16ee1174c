"""What one attention module knows while its model is extended, and who may watch it compute."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from torch import nn

from lengthwise.attention import Equation, RowStatistics
from lengthwise.methods.slots import Slots
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.masks import ForwardMask
from lengthwise.models.rotary import Rotary
from lengthwise.models.state import LAYER


class Observer(Protocol):
    """Watches the layers of a running forward; calibration and measurement are observers."""

    def before(self, layer: int, equation: Equation) -> Equation:
        """May replace the equation that the layer is about to solve."""
        ...

    def after(self, layer: int, equation: Equation, rows: RowStatistics) -> None: ...


@dataclass
class Layer:
    """One attention module's part in an extended model."""

    index: int
    slots: Slots  # of this layer
    installed: Slots  # of the model: a position method may leave some layers alone
    stock: str  # the name of the implementation that the model came with
    train_length: int
    bias_owner: nn.Module | None
    implementation: str = "auto"
    empties_padding: bool = True  # whether a query that is padding itself sees no key; not for keys of another stack
    exact: bool = True  # whether inputs that the method leaves alone run as they ran before, bit for bit
    observer: Observer | None = None
    rotary: Rotary | None = None  # set where we rotate queries and keys
    rotated_part: str = "all of it"  # of a query or key: one of `rotary.PARTS`
    turns_halves: bool = False  # see `rotary.turns_halves`
    read: dict[Any, ForwardMask] = field(default_factory=dict)  # the callers' masks of one forward, for all layers
    visits: int = 0
    _short: dict[int, bool] = field(default_factory=dict)
    only_biased: bool = field(init=False)  # nothing but T5's own attention, which need not be bit for bit

    def __post_init__(self) -> None:
        plain = self.bias_owner is not None and not self.slots.filled and self.observer is None
        self.only_biased = plain and not self.exact and self.implementation in ("auto", "triton")

    def is_stock(self, keys: int) -> bool:
        """Whether inputs of this many keys run on the model's own implementation, bit for bit as before."""
        if not self.exact or self.observer is not None or self.implementation != "auto" or keys > self.train_length:
            return False
        # What learns changes from step to step
        if any(isinstance(law, nn.Module) for law in self.slots.laws):
            return self.slots.leaves_alone(keys, self.index)
        if self._spares_all_short:
            return True
        if keys not in self._short:
            self._short[keys] = self.slots.leaves_alone(keys, self.index)
        return self._short[keys]

    @property
    def arrive_rotated(self) -> bool:
        """Whether queries and keys come, and are cached, rotated where they stand: some are then turned on from there."""
        return self.rotary is not None and self.rotary.lap is not None

    @property
    def only_sharpens(self) -> bool:
        """Whether nothing is added to logits that laws of n multiply, and nobody looks at them."""
        slots = self.slots
        plain = slots.bias is None and self.bias_owner is None and slots.segmented is None and not slots.adaptive
        return plain and self.observer is None and self.implementation == "auto"

    @cached_property
    def _spares_all_short(self) -> bool:
        """Whether the method changes no input up to the training length: asked once, not at each length."""
        return self.slots.leaves_alone(self.train_length, self.index)


def active_slots(anatomy: Anatomy) -> Slots | None:
    """The slots that all `extend`s of this model fill together; None for a model that is not extended."""
    layer = LAYER.on(anatomy.layers[0])
    return None if layer is None else layer.installed
