"""What happens when methods meet."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from lengthwise.errors import BadInput
from lengthwise.methods.positions.streaming_llm import StreamingLLM
from lengthwise.methods.slots import Slots

N = torch.tensor([[[1, 2, 3]]])


@dataclass(frozen=True)
class Times:
    """g = factor, plus one a layer, beyond `spared` keys."""

    factor: float
    spared: int = 0

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        return torch.where(visible > self.spared, self.factor + layer, 1.0)


@dataclass(frozen=True)
class ByHead:
    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        return torch.tensor([1.0, 10.0])[None, :, None].expand(1, 2, visible.shape[-1])


@dataclass(frozen=True)
class Plus:
    """g = 1 + amount * H beyond `spared` keys' worth of entropy."""

    amount: float
    spared: int = 0

    def adaptive_sharpness(self, entropy: Tensor, layer: int = 0) -> Tensor:
        return 1 + self.amount * entropy + layer

    def leaves_alone(self, length: int) -> bool:
        return length <= self.spared


def halved(g: Tensor | None) -> Tensor:
    """As if the entropy were 8 / g in both heads."""
    return torch.full((1, 2, 3), 8.0) / (1.0 if g is None else g)


class Window:
    def narrow(self) -> None: ...

    def leaves_alone(self, length: int) -> bool:
        return length <= 2


class Sinks:
    name = "streaming sinks"

    def narrow(self) -> None: ...


class Rotation:
    def frequencies(self) -> None: ...

    def leaves_alone(self, length: int) -> bool:
        return False


class SharpWindow(Window):
    """Fills two slots."""

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        return torch.full(visible.shape, 3.0)


class RotatedWindow(Window, Rotation):
    """Fills two slots, neither of them the temperature."""


def test_two_methods_of_one_name_are_both_named_and_one_in_two_slots_once() -> None:
    both = StreamingLLM(train_length=32)
    assert Slots.of([Times(2.0), both, Times(3.0)]).names == ["Times", "Times", "StreamingLLM"]


def test_temperatures_multiply() -> None:
    slots = Slots.of([Times(2.0), Times(5.0), Times(1.5, spared=2)])
    g = slots.inverse_temperature(N, layer=0)
    assert g is not None
    assert g.tolist() == [[[10.0, 10.0, 15.0]]]


def test_every_temperature_hears_the_layer() -> None:
    g = Slots.of([Times(2.0), Times(5.0)]).inverse_temperature(N, layer=1)
    assert g is not None
    assert g.tolist() == [[[18.0, 18.0, 18.0]]]


def test_a_temperature_by_head_multiplies_one_for_all_heads() -> None:
    g = Slots.of([Times(2.0), ByHead()]).inverse_temperature(N, layer=0)
    assert g is not None
    assert g.tolist() == [[[2.0] * 3, [20.0] * 3]]


def test_an_adaptive_temperature_follows_the_entropy_at_the_product_of_the_laws_in_any_order() -> None:
    for methods in ([Times(2.0), Times(2.0), Plus(0.5)], [Plus(0.5), Times(2.0), Times(2.0)]):
        g = Slots.of(methods).inverse_temperature(N, 0, halved)
        # H = 8 / 4, so 4 * (1 + 0.5 * 2)
        assert g is not None
        assert g.tolist() == [[[8.0] * 3] * 2]


def test_adaptive_temperatures_alone_read_the_models_own_entropy_and_hear_the_layer() -> None:
    g = Slots.of([Plus(0.5), Plus(0.25)]).inverse_temperature(N, 1, halved)
    assert g is not None
    assert g.tolist() == [[[6.0 * 4.0] * 3] * 2]


def test_an_adaptive_temperature_is_no_law_of_n() -> None:
    with pytest.raises(BadInput, match=r"^Plus follows the entropy of every row, .*no one temperature for a length"):
        Slots.of([Times(2.0), Plus(0.5)]).inverse_temperature(N, layer=0)


def test_temperatures_of_some_heads() -> None:
    g = Slots.of([Times(2.0), ByHead()]).inverse_temperature(N, 0, heads=slice(1, 2))
    assert g is not None
    assert g.tolist() == [[[20.0] * 3]]
    g = Slots.of([ByHead(), Plus(1.0)]).inverse_temperature(N, 0, lambda g: halved(None)[:, 1:] / g, slice(1, 2))
    assert g is not None
    assert g.tolist() == [[pytest.approx([18.0] * 3)]]


def test_no_temperature_is_none_and_not_one() -> None:
    assert Slots().inverse_temperature(N, layer=0) is None
    assert Slots.of([Window()]).inverse_temperature(N, layer=0) is None


def test_a_method_fills_the_slot_of_its_function() -> None:
    window, rotation, law = Window(), Rotation(), Times(2.0)
    slots = Slots.of([window, law, rotation])
    assert slots.visible is window
    assert slots.rotation is rotation
    assert slots.temperature == (law,)
    assert slots.similarity is None
    assert slots.bias is None


def test_filled_names_the_slots_in_the_order_of_the_equation() -> None:
    assert Slots().filled == ()
    assert Slots.of([Window(), Rotation(), Times(2.0)]).filled == ("temperature", "rotation", "visible")
    assert Slots.of([SharpWindow()]).filled == ("temperature", "visible")


def test_two_methods_in_one_slot_are_refused_with_both_names() -> None:
    with pytest.raises(BadInput, match="Window and streaming sinks both fill the visible slot; leave one of them out"):
        Slots.of([Window(), Times(2.0), Sinks()])


def test_a_method_with_no_slot_is_refused() -> None:
    with pytest.raises(BadInput, match=r"object fills no slot: a method needs one of inverse_temperature, .*narrow"):
        Slots.of([Times(2.0), object()])


def test_a_method_added_to_slots_leaves_them_as_they_were() -> None:
    slots = Slots.of([Times(2.0)])
    slots.joined_with(Slots.of([Window()]))
    assert slots.filled == ("temperature",)


def test_slots_together_are_as_if_named_in_one_spec() -> None:
    window, rotation = Window(), Rotation()
    both = Slots.of([Times(2.0), window]).joined_with(Slots.of([Times(5.0), rotation]))
    assert both == Slots.of([Times(2.0), window, Times(5.0), rotation])


def test_slots_together_with_none_are_themselves() -> None:
    slots = Slots.of([Times(2.0), Window()])
    assert slots.joined_with(Slots()) == slots
    assert Slots().joined_with(slots) == slots


def test_slots_together_refuse_two_methods_in_one_slot() -> None:
    with pytest.raises(BadInput, match="Window and streaming sinks both fill the visible slot"):
        Slots.of([Window()]).joined_with(Slots.of([Sinks()]))


def test_a_method_of_two_slots_counts_once_when_slots_come_together() -> None:
    method = SharpWindow()
    assert Slots.of([Times(2.0)]).joined_with(Slots.of([method])) == Slots.of([Times(2.0), method])


def test_a_method_of_two_slots_does_not_collide_with_itself() -> None:
    method = RotatedWindow()
    assert Slots().joined_with(Slots.of([method])) == Slots.of([method])


def test_no_method_leaves_every_length_alone() -> None:
    assert Slots().leaves_alone(10**4, layer=0)


def test_a_law_leaves_alone_the_lengths_it_spares() -> None:
    slots = Slots.of([Times(2.0, spared=64)])
    assert slots.leaves_alone(64, layer=0)
    assert not slots.leaves_alone(65, layer=0)


def test_an_adaptive_temperature_says_itself_what_it_leaves_alone() -> None:
    assert Slots.of([Plus(1.0, spared=2)]).leaves_alone(2, layer=0)
    assert not Slots.of([Plus(1.0, spared=2)]).leaves_alone(3, layer=0)
    assert not Slots.of([Plus(1.0, spared=64), Times(2.0, spared=9)]).leaves_alone(10, layer=0)


def test_all_rows_up_to_the_length_must_be_spared() -> None:
    class OnlyShort:
        def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
            return torch.where(visible < 3, 2.0, 1.0)

    assert not Slots.of([OnlyShort()]).leaves_alone(64, layer=0)


def test_leaving_alone_is_a_matter_of_the_layer() -> None:
    slots = Slots.of([Times(1.0)])
    assert slots.leaves_alone(64, layer=0)
    assert not slots.leaves_alone(64, layer=1)


def test_a_method_in_another_slot_says_itself_what_it_leaves_alone() -> None:
    assert Slots.of([Window()]).leaves_alone(2, layer=0)
    assert not Slots.of([Window()]).leaves_alone(3, layer=0)
    assert not Slots.of([Window(), Times(2.0)]).leaves_alone(2, layer=0)
    assert not Slots.of([Times(1.0), Rotation()]).leaves_alone(1, layer=0)
