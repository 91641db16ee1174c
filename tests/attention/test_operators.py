"""The equation as operators of PyTorch: what they compute, and what graphs are told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lengthwise.attention import DistanceBias, Equation, Rest, attention, scan
from tests.helpers.kernels import Case, leaves_of

pytest.importorskip("triton")

CASES = {
    "full": Case(20),
    "padding": Case(20, batch=2, mask="padding", temperature="row"),
    "hole": Case(20, batch=2, mask="padding hole"),
    "causal": Case(20, mask="causal", radius=None, temperature="head", kv_heads=1),
    "a cache": Case(3, keys=20, mask="causal"),
    "a token": Case(1, keys=20, batch=2, mask="padding causal", radius=None, temperature="row", kv_heads=1),
}
WAYS = ("auto", "triton")
# The kernels are interpreted, slowly: they are tested with all masks elsewhere
SLOW = ("full", "hole", "a cache", "a token")
CROSSED = [
    pytest.param(name, way, marks=pytest.mark.sweep if way == "triton" and name in SLOW else [])
    for name in CASES
    for way in WAYS
]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def in_graph(function: Callable[..., Any], backend: str = "aot_eager") -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, backend=backend)


def solved(whole: Equation, way: str, *leaves: Tensor) -> Tensor:
    """The equation again, of the tensors that a graph knows as its inputs."""
    query, key, value, *more = leaves
    bias = whole.bias and DistanceBias(more[0])
    g = None if whole.inverse_temperature is None else more[-1]
    changed = replace(whole, query=query, key=key, value=value, bias=bias, inverse_temperature=g)
    return attention(changed, implementation=way)[0]


@pytest.mark.parametrize(("name", "way"), CROSSED)
def test_a_graph_has_the_output_and_the_gradients_of_the_equation(name: str, way: str) -> None:
    whole, leaves = leaves_of(CASES[name].equation())
    expected = solved(whole, way, *leaves)
    up = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0))
    wanted = torch.autograd.grad(expected, leaves, up)
    output = in_graph(lambda *given: solved(whole, way, *given))(*leaves)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    for got, want in zip(torch.autograd.grad(output, leaves, up), wanted, strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


def test_a_graph_has_the_gradient_of_rows_in_parts() -> None:
    """Their shares are made of statistics, which have a gradient, too; the first rows see nothing of the second part."""
    whole, leaves = leaves_of(Case(20, mask="causal", radius=None).equation())
    near, far = whole.visible.around(-5, None), whole.visible.around(None, -5)

    def in_parts(query: Tensor, key: Tensor, value: Tensor, turned: Tensor) -> Tensor:
        rest = Rest(query, turned, value, far)
        return attention(replace(whole, query=query, key=key, value=value, visible=near, more=(rest,)))[0]

    leaves = [*leaves, (leaves[1] * 0.5).detach().requires_grad_()]
    expected = in_parts(*leaves)
    up = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0))
    wanted = torch.autograd.grad(expected, leaves, up)
    output = in_graph(in_parts)(*leaves)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    for got, want in zip(torch.autograd.grad(output, leaves, up), wanted, strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_a_graph_drops_other_weights_every_time_and_has_the_gradient_of_those(way: str) -> None:
    whole, (query, key, value, *_) = leaves_of(Case(20, dropout=0.5, radius=None).equation())
    graph = in_graph(lambda *given: solved(whole, way, *given))
    torch.manual_seed(0)
    first = graph(query, key, value)
    assert not torch.equal(graph(query, key, value), first)
    # The output is linear in the values: its gradient gives it back
    (d_value,) = torch.autograd.grad(first, value, first.detach())
    torch.testing.assert_close((d_value * value).sum(), first.square().sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_statistics_and_scans_are_the_same_in_a_graph(way: str) -> None:
    whole = Case(20, batch=2, mask="padding").equation()
    temperatures = torch.tensor([0.5, 1.0])[:, None, None, None]

    def found(query: Tensor) -> list[Tensor]:
        equation = replace(whole, query=query)
        rows = [attention(equation, statistics=True, implementation=way)[1], scan(equation, temperatures)]
        return [field for row in rows if row is not None for field in (row.p_max, row.lse, row.entropy)]

    for got, want in zip(in_graph(found)(whole.query), found(whole.query), strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def given(name: str, way: str) -> tuple[Any, ...]:
    """The arguments of `solve` for a case."""
    whole = CASES[name].equation()
    visible, bias, g = whole.visible, whole.bias, whole.inverse_temperature
    tensors = [t.detach().clone().requires_grad_() for t in (whole.query, whole.key, whole.value)]
    table = None if bias is None else bias.widened.detach().clone().requires_grad_()
    hidden = None if visible.hidden is None else visible.flagged
    radius = 0 if bias is None else bias.radius
    bounds = torch.ops.lengthwise.query_bounds(visible.packed, visible.keys, radius, 32, torch.float32)
    return *tensors, table, g, visible.packed, hidden, None, bounds, 0, radius, whole.scale, 0.0, way


@pytest.mark.parametrize(("name", "way"), [("padding", "triton"), ("causal", "auto"), ("hole", "auto")])
def test_the_operators_keep_what_they_promise_to_graphs(name: str, way: str) -> None:
    ops, operands = torch.ops.lengthwise, given(name, way)
    # Gradients of the whole operator through a graph are tested above, once and not at several shapes
    utilities = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(ops.solve.default, (*operands, 1), test_utils=utilities)
    plain = tuple(t.detach() if isinstance(t, Tensor) else t for t in operands)
    output, rows = ops.solve(*plain, 1)
    torch.library.opcheck(ops.solve.default, (*plain, 2), test_utils=utilities)
    needs = [True, False, True, plain[3] is not None, plain[4] is not None]
    if way == "triton":
        # The others make gradients by autograd, below which this check runs
        back = (*plain, torch.ones_like(output), output, rows, None, needs)
        torch.library.opcheck(ops.gradients.default, back, test_utils=utilities)
    query, key, _, table, _, runs, hidden = plain[:7]
    torch.library.opcheck(ops.query_bounds.default, (runs, 20, plain[10], 32, torch.float32), test_utils=utilities)
    temperatures = torch.ones(2, 1, 1, 1)
    torch.library.opcheck(
        ops.scan.default, (query, key, table, temperatures, runs, hidden, 0, plain[10], plain[11]), test_utils=utilities
    )
