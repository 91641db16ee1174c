"""A layer's bias as a table over distances."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate import cpu_offload

import lengthwise as lw
from lengthwise.attention import attention
from lengthwise.models.bias import learned_bias, table_instead_of_matrix
from tests.conftest import make, tokens


def test_the_table_holds_what_transformers_adds_at_every_distance() -> None:
    owner = make("t5").encoder.block[0].layer[0].SelfAttention
    table, length = learned_bias(owner).table, 300
    dense = owner.compute_bias(length, length)[0]  # [heads, queries, keys]
    radius = owner.relative_attention_max_distance
    distance = torch.arange(length) - torch.arange(length)[:, None]
    assert torch.equal(table[:, distance.clamp(-radius, radius) + radius], dense)


@pytest.mark.parametrize("name", ["t5", "mt5", "umt5", "switch"])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_instead_of_a_matrix_there_is_a_line_over_distances(name: str, stack: str) -> None:
    owner = make(name).get_submodule(stack).block[0].layer[0].SelfAttention.to(torch.bfloat16)
    line = table_instead_of_matrix(owner)(7, 10**9)
    reach = (line.shape[-1] - 1) // 2
    assert line.dtype == torch.float32
    assert torch.equal(line, owner.compute_bias(1, 2 * reach + 1, past_seen_tokens=reach).float())
    line.sum().backward()
    assert owner.relative_attention_bias.weight.grad.abs().sum() > 0


def test_a_model_may_be_accelerated_in_inference_mode_and_before_it_has_weights() -> None:
    model, ids = make("t5 encoder"), tokens(40)
    expected = model(ids)[0]
    with torch.device("meta"):
        empty = make("t5 encoder")
    with torch.inference_mode():
        lw.accelerate(empty)
    empty.load_state_dict(model.state_dict(), assign=True)
    empty.encoder.embed_tokens = empty.shared
    with torch.inference_mode():
        empty(ids)
    found = empty(ids)[0]
    found.sum().backward()
    lw.restore(empty)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_an_offloaded_model_has_weights_while_it_computes_alone() -> None:
    model, ids = make("t5 encoder"), tokens(40)
    expected = model(ids)[0]
    cpu_offload(model, execution_device=torch.device("cpu"))
    with lw.accelerate(model):
        torch.testing.assert_close(model(ids)[0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("learns", [False, True])
def test_kernels_get_a_bias_in_float32_whatever_a_wrapper_makes_of_it(learns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """FSDP's mixed precision rounds what one block hands to the next."""
    model, ids, types = make("t5 encoder").bfloat16(), tokens(12), []

    def rounded(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def narrow(part: Any) -> Any:
            return part.bfloat16() if torch.is_tensor(part) and part.is_floating_point() else part

        return tuple(map(narrow, args)), {key: narrow(part) for key, part in kwargs.items()}

    def solve(equation: Any, **_: Any) -> Any:
        types.append(equation.bias.table.dtype)
        return attention(equation)

    monkeypatch.setattr("lengthwise.models.bias.direct", lambda *given: types.append(given[4].dtype))
    monkeypatch.setattr("lengthwise.models.attention_interface.attention", solve)
    for block in model.encoder.block:
        block.register_forward_pre_hook(rounded, with_kwargs=True)
    with lw.accelerate(model, implementation="triton"), torch.set_grad_enabled(learns):
        states = model(ids)[0]
        if learns:
            states.sum().backward()
    assert set(types) == {torch.float32}
