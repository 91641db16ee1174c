"""What of a method a stock model can carry: frequencies in its config, temperatures in its weights; all else is refused.

| slot        | carried by                                                           | refused                           |
|-------------|----------------------------------------------------------------------|-----------------------------------|
| temperature | weights, at one length; a law of the config where the family has one | adaptive: it follows every row    |
| rotation    | `rope_parameters`, where a method changes frequencies                | distances, layers, rolling caches |
| others      |                                                                      | similarity, bias, visible         |
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.calibration.bake import fold_and_check, refuse_unsavable, sharpness_at
from lengthwise.calibration.export.query_law import QueryLaw, fitted_law
from lengthwise.calibration.export.rope import Rope, find_rope, set_rope
from lengthwise.common.text import parse_lengths
from lengthwise.errors import BadInput, require
from lengthwise.methods.base import acts_on, follows_length, leaves_alone, method_name, stock_rotation, stretch_of
from lengthwise.methods.slots import Slots
from lengthwise.methods.temperature.aligned import Alignment
from lengthwise.models.anatomy import Anatomy, anatomy_of, unwrapped
from lengthwise.models.patches import refuse_extended
from lengthwise.models.suitability import Method, suitable_slots


@dataclass(frozen=True)
class Plan:
    """The changes to a model's config and weights that carry a method, and the length they are for."""

    anatomy: Anatomy
    slots: Slots
    length: int
    rope: Rope | None
    total: Tensor  # [layers, heads], the temperature of every row, but for the law's
    law: QueryLaw | None

    @property
    def g(self) -> Tensor:  # [layers, heads]
        """The part of the temperature left for the weights; exactly 1 where only a rounding of float32 is left."""
        if self.law is not None:
            return torch.ones_like(self.total)
        by_rope = torch.ones(len(self.total), 1)
        if self.rope is not None:
            by_rope[torch.tensor(self.rope.served)] = self.rope.sharpness
        g = self.total / by_rope
        return torch.where((g - 1).abs() < 1e-6, torch.ones_like(g), g)

    @property
    def stretch(self) -> int:
        """How many times the training length, rounded up; the factor of what is recommended in place of a method."""
        return max(2, -(-self.length // self.anatomy.train_length))

    def rotation(self, own: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """The rope parameters that an engine has to compute, and who needs them; `own` are the model's."""
        return (own, "this model") if self.rope is None else (self.rope.parameters, " + ".join(self.slots.names))

    @property
    def freezes(self) -> bool:
        """Whether frequencies that follow the input are fixed at the plan's length."""
        if self.rope is None or not follows_length(self.slots.rotation):
            return False
        return bool(self.rope.parameters["rope_type"] != (stock_rotation(self.slots.rotation) or {}).get("rope_type"))

    @property
    def folds(self) -> bool:
        """Whether any weight changes."""
        return bool((self.g != 1).any())


def make_plan(model: nn.Module, method: Method, length: int | None, train_length: int | None, force: bool = False) -> Plan:
    """Plan how a stock model of this family can compute `method` on inputs of `length` tokens, or refuse with the reason."""
    refuse_extended(model, "export")
    refuse_unsavable(model)
    anatomy = anatomy_of(model, train_length)
    slots = suitable_slots(anatomy, method, force)
    if length is not None:
        (length,) = parse_lengths(length)
    _refuse_slots(anatomy, slots, length)
    length = length or _implied_length(anatomy, slots)
    rope = None if slots.frequencies is None else find_rope(anatomy, slots.frequencies, length)
    law = fitted_law(anatomy, slots, length) if rope is None else None
    plan = Plan(anatomy, slots, length, rope, _sharpness(anatomy, slots, length, rope), law)
    does_something = rope is not None or law is not None or plan.folds
    none = f"at length {length} this method changes nothing: there is nothing to export; give a length above the training one"
    require(does_something or not slots.filled, none)
    return plan


def carry_out(model: nn.Module, plan: Plan, inplace: bool = False) -> Any:
    """A copy of the model (itself with `inplace`) with the plan's weights and config, as `save_pretrained` writes them.

    Its rotary embedding is still the old one: transformers makes it when the checkpoint is loaded.
    """
    stock = unwrapped(model) if inplace else copy.deepcopy(unwrapped(model))
    if plan.folds:
        fold_and_check(stock, plan.g, plan.length, plan.anatomy.train_length)
    config: Any = anatomy_of(stock, plan.anatomy.train_length).stack.config
    if plan.rope is not None:
        set_rope(config, plan.rope.whole, plan.rope.longest)
    if plan.law is not None:
        config.rope_parameters = {**config.rope_parameters, "llama_4_scaling_beta": plan.law.beta}
    return stock


def _sharpness(anatomy: Anatomy, slots: Slots, length: int, rope: Rope | None) -> Tensor:  # -> [layers, heads]
    """g at the length; a rotation's own temperature is for the layers whose frequencies it changes, as `extend` has it."""
    g = sharpness_at(anatomy, slots, length)
    if rope is None:
        return g
    return torch.where(torch.tensor(rope.served)[:, None], g, sharpness_at(anatomy, slots.without(slots.rotation), length))


def _implied_length(anatomy: Anatomy, slots: Slots) -> int:
    """The longest length that an alignment was calibrated for, or that the factor of a rotation is for."""
    lengths = [law.temperatures[-1].length for law in slots.laws if isinstance(law, Alignment)]
    factor = stretch_of(slots.rotation)
    if factor is not None and not follows_length(slots.rotation):
        lengths.append(round(anatomy.train_length * factor))
    require(bool(lengths) or not slots.filled, "this method does not tell for which length it is; give it (--length)")
    return max(lengths, default=anatomy.train_length)


def _refuse_slots(anatomy: Anatomy, slots: Slots, length: int | None) -> None:
    """Refuse what no stock engine computes, naming what it can have instead."""
    stretch = max(2, -(-(length or 4 * anatomy.train_length) // anatomy.train_length))
    rotary = anatomy.rotates
    temperature = "a temperature, such as log_length or an alignment that `calibrate` finds"
    instead = f"the nearest that can is yarn:factor={stretch}" if rotary else f"what can is {temperature}"
    refused: tuple[tuple[object, str], ...] = (
        (slots.similarity, "replaces the product of queries and keys"),
        (slots.parts, "gives keys of one row different distances"),
        (slots.bias, "adds a bias that the checkpoint has no place for"),
        (slots.visible, "hides keys, or drops them from the cache"),
    )
    for method, reason in refused:
        if method is not None:
            raise BadInput(f"{method_name(method)} {reason}, which no stock engine computes; {instead}")
    if slots.adaptive:
        raise BadInput(
            f"{method_name(slots.adaptive[0])} follows the entropy of every row, which no stock engine does; {instead}"
        )
    if not all(acts_on(slots.rotation, layer) for layer in range(len(anatomy.layers))):
        raise BadInput(f"{method_name(slots.rotation)} rotates some layers only, which no config can say; {instead}")
    if follows_length(slots.rotation) and stock_rotation(slots.rotation) is None and length is None:
        raise BadInput(
            f"{method_name(slots.rotation)} follows the length of each input; give one it is exported for (--length)"
        )


def notes(plan: Plan) -> list[str]:
    """In words, where a stock model with this plan differs from the extended one."""
    anatomy, slots, rope = plan.anatomy, plan.slots, plan.rope
    if plan.law is not None:
        return [plan.law.says]
    lines = []
    laws = slots.without(slots.rotation) if follows_length(slots.rotation) else slots
    if not torch.equal(sharpness_at(anatomy, laws, plan.length), sharpness_at(anatomy, laws, 2)):
        rows = "; in `extend` each row has that of the keys it sees" if anatomy.causal else ", short ones included"
        lines.append(f"the temperature is that of {plan.length:,} tokens for every input{rows}")
    if plan.freezes:
        lines.append(f"above {anatomy.train_length:,} tokens the frequencies are those of {plan.length:,} tokens")
    if rope is not None and rope.parameters["rope_type"] == "dynamic":
        lines.append("keys in a cache keep the frequencies they were read with; `extend` turns them as the input grows")
    if rope is not None and follows_length(slots.rotation) and any(anatomy.windows):
        lines.append("frequencies follow the length of the input; `extend` has those of the window in layers that see no more")
    if rope is not None and rope.sharpness != 1 and leaves_alone(slots.rotation, anatomy.train_length):
        lines.append(f"inputs up to {anatomy.train_length:,} tokens are sharpened too; `extend` leaves them alone")
    return lines
