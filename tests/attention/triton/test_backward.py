"""Gradients of the fused kernel against autograd through the law, in Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lengthwise.attention import Equation, Rest, attention
from tests.helpers.kernels import FP16, Case, assert_gradients, leaves_of

pytest.importorskip("triton")
from lengthwise.attention.triton import backward, key_bounds
from lengthwise.attention.triton.launch import operands_of
from lengthwise.attention.triton.operands import Tile


def triton(equation: Equation) -> Tensor:
    return attention(equation, implementation="triton")[0]


CASES = {
    "a token": Case(1, temperature="row"),
    "all keys": Case(70, temperature="head"),
    "no bias": Case(40, heads=1, kv_heads=1, radius=None),
    "one number for every distance": Case(40, radius=0, heads=1, kv_heads=1, temperature="row"),
    "a table as wide as the sequence": Case(40, radius=40, heads=1, kv_heads=1),
    "causal, grouped heads": Case(70, mask="causal", kv_heads=1, temperature="row"),
    "a window, size 24": Case(70, mask="causal window", radius=None, size=24, heads=1, kv_heads=1),
    "padding": Case(70, batch=2, heads=1, kv_heads=1, mask="padding", temperature="signs"),
    "padding, causal, one temperature": Case(50, batch=2, heads=1, kv_heads=1, mask="padding causal", temperature="one"),
    "a hole": Case(50, heads=1, kv_heads=1, mask="hole", temperature="row"),
    "rows in any order": Case(70, heads=1, kv_heads=1, mask="shuffled"),
    "packed sequences": Case(90, heads=1, kv_heads=1, mask="packed"),
    "a filled cache": Case(7, 70, mask="causal"),
    "size 160": Case(40, size=160, heads=1, kv_heads=1, mask="padding causal"),
    "size 256, half precision": Case(70, size=256, heads=2, kv_heads=1, dtype=FP16, mask="causal window", radius=None),
    "half precision": Case(70, heads=1, kv_heads=1, dtype=FP16, mask="causal", temperature="row"),
}


@pytest.mark.parametrize("name", CASES)
def test_every_gradient_is_the_laws(name: str) -> None:
    assert_gradients(triton, CASES[name].equation())


@pytest.mark.parametrize("name", ["causal, a row", "padding", "half precision"])
def test_gradients_go_through_all_runs_of_a_row(name: str) -> None:
    """Keys before the middle of a row are one run, the others another; rows of padding see none of either."""
    dtype = FP16 if name == "half precision" else torch.float32
    mask, batch = ("padding causal", 2) if name == "padding" else ("causal", 1)
    whole = Case(50, batch=batch, heads=2, kv_heads=1, mask=mask, radius=None, temperature="row", dtype=dtype).equation()
    seen = whole.visible
    middle = (seen.start + seen.stop) // 2

    def in_two(equation: Equation) -> Equation:
        near = replace(seen, start=torch.minimum(middle, seen.stop))
        far = Rest(equation.query * 0.5, equation.key, equation.value, replace(seen, stop=middle))
        return replace(equation, visible=near, more=(far,))

    def solved(implementation: str, precise: torch.dtype) -> list[Tensor]:
        tensors = (whole.query, whole.key, whole.value, whole.inverse_temperature)
        leaves = [tensor.detach().to(precise).requires_grad_() for tensor in tensors if tensor is not None]
        equation = replace(whole, query=leaves[0], key=leaves[1], value=leaves[2], inverse_temperature=leaves[3])
        output, _ = attention(in_two(equation), implementation=implementation)
        weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)
        return [output.detach(), *torch.autograd.grad(output, leaves, weight)]

    found, law = solved("triton", dtype), solved("reference", torch.float32)
    for one, other in zip(found, law, strict=True):
        near = 2e-2 if dtype == FP16 else 2e-5
        torch.testing.assert_close(one.float(), other.float(), atol=near * float(other.abs().max()), rtol=0)


def test_a_band_too_large_for_one_launch_takes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward, "BAND", 1)
    assert_gradients(triton, Case(40, batch=2, temperature="row").equation())


@pytest.mark.parametrize("mask", ["causal", "padding", "shuffled", "packed"])
def test_blocks_of_keys_looked_at_one_by_one_are_seen_by_the_same_queries(monkeypatch: pytest.MonkeyPatch, mask: str) -> None:
    case, tile = Case(330, batch=2, mask=mask), Tile(32, 64, 4, 2)

    def bounds() -> Tensor:
        return key_bounds.query_bounds(operands_of(case.equation(), None), tile)

    together = bounds()
    assert together.shape == (len(case.visible().start), 6, 6)
    for flags in (1, 25):
        monkeypatch.setattr(key_bounds, "FLAGS", flags)
        assert torch.equal(bounds(), together)


def test_gradients_are_the_same_every_time() -> None:
    ours, leaves = leaves_of(Case(70, mask="causal", kv_heads=1).equation())
    first, second = (torch.autograd.grad(triton(ours).square().sum(), leaves) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("wanted", range(4))
def test_one_gradient_alone_is_what_it_is_among_all(wanted: int) -> None:
    equation = Case(40, heads=1, kv_heads=1).equation()
    ours, leaves = leaves_of(equation)
    among = torch.autograd.grad(triton(ours).square().sum(), leaves)[wanted]
    for index, leaf in enumerate(leaves):
        leaf.requires_grad_(index == wanted)
    (alone,) = torch.autograd.grad(triton(ours).square().sum(), [leaves[wanted]])
    assert torch.equal(alone, among)


def test_a_gradient_of_a_gradient_is_refused() -> None:
    ours, leaves = leaves_of(Case(10).equation())
    (first,) = torch.autograd.grad(triton(ours).square().sum(), leaves[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
