"""What lengthwise keeps on objects of others: found again, gone with its object, and never on a tensor."""

from __future__ import annotations

import gc

import torch
from torch import nn

from lengthwise.attention import Visible
from lengthwise.models.masks import ForwardMask, build_mask, decode
from lengthwise.models.state import MASK, Attribute, OfTensors

CPU = torch.device("cpu")


def test_an_attribute_is_found_on_its_owner_alone_and_leaves_no_trace() -> None:
    state, owner, other = Attribute[list[int]]("_lengthwise_test"), nn.Linear(1, 1), nn.Linear(1, 1)
    before = set(vars(owner))
    state.put(owner, [1])
    assert state.on(owner) == [1]
    assert state.on(other) is None
    assert [name for name, _ in owner.named_parameters()] == ["weight", "bias"]
    state.remove(owner)
    state.remove(owner)
    assert set(vars(owner)) == before


def test_state_of_a_tensor_dies_with_it_and_is_not_its_copys() -> None:
    state, tensor = OfTensors[str](), torch.ones(2)
    state.put(tensor, "first")
    state.put(tensor, "second")
    assert state.on(tensor) == "second"
    assert state.on(tensor.clone()) is None
    assert not vars(tensor)
    del tensor
    gc.collect()
    assert len(state) == 0


def test_an_id_that_is_used_again_is_another_tensor() -> None:
    state, tensor, other = OfTensors[str](), torch.ones(2), torch.ones(2)
    state.put(tensor, "old")
    state._entries[id(other)] = state._entries[id(tensor)]
    assert state.on(other) is None


def test_the_runs_of_a_mask_die_with_the_mask() -> None:
    before = len(MASK)
    mask = build_mask(1, 3, 5, q_offset=2, device=CPU)
    assert MASK.on(mask) is decode(mask, 3, 5, True, CPU)
    assert not vars(mask)
    del mask
    gc.collect()
    assert len(MASK) == before


def test_a_compiled_graph_reads_the_numbers_of_a_mask() -> None:
    """No graph break: state that only the interpreter has is passed over while a graph is traced."""

    def stops(positions: torch.Tensor) -> torch.Tensor:
        runs = Visible(torch.zeros_like(positions)[None], positions[None] + 1, positions, 4)
        tensor = torch.stack([runs.start, runs.stop, runs.position.expand_as(runs.start)], -1)[:, None]
        MASK.put(tensor, ForwardMask(runs))
        return decode(tensor, 4, 4, True, CPU).visible.stop

    compiled = torch.compile(stops, fullgraph=True, backend="eager")
    assert compiled(torch.arange(4)).tolist() == [[1, 2, 3, 4]]
