"""The shortest way to the forward kernel gives what the long way gives; in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import lengthwise as lw
from lengthwise.attention import attention
from lengthwise.attention.triton import planned
from lengthwise.attention.triton.direct import direct
from tests.conftest import make, tokens
from tests.helpers.kernels import Case, assert_right

pytest.importorskip("triton")

CASES = {
    "full": Case(70),
    "padding": Case(70, batch=2, mask="padding"),
    "holes": Case(40, batch=2, mask="padding hole"),
    "a cache": Case(1, keys=40, mask="causal"),
}


@pytest.fixture(autouse=True)
def _no_plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(planned, "_plans", {})
    with torch.no_grad():
        yield


def solve(equation: Any) -> Any:
    bias = equation.bias
    return direct(
        equation.query, equation.key, equation.value, equation.visible, bias.widened[None, :, None], bias.radius, equation.scale
    )


@pytest.mark.parametrize("name", CASES)
def test_it_gives_the_laws_output_prepared_or_not(name: str) -> None:
    for seed in range(2):
        assert_right(lambda e: (solve(e).transpose(1, 2), None), CASES[name].equation(seed=seed))
    assert len(planned._plans) == 1


def test_other_shapes_strides_and_masks_have_plans_of_their_own() -> None:
    for case in (Case(20), Case(21), Case(20, batch=2), Case(20, batch=2, mask="padding"), Case(20, radius=7)):
        equation = case.equation()
        expected = attention(equation, implementation="triton")[0]
        torch.testing.assert_close(solve(equation).transpose(1, 2), expected, atol=0, rtol=0)
    # The long way takes the same ones
    assert len(planned._plans) == 5


def test_what_the_kernel_cannot_compute_is_left_to_others() -> None:
    assert solve(Case(20, size=264).equation()) is None
    assert solve(Case(20, dtype=torch.float64).equation()) is None


def test_an_accelerated_model_takes_it_without_a_gradient_alone() -> None:
    model, ids = make("t5 encoder"), tokens(20)
    expected = model(ids)[0]
    with lw.accelerate(model, implementation="triton"):
        torch.testing.assert_close(model(ids)[0], expected, atol=1e-5, rtol=1e-5)
        assert len(planned._plans) == 1
        with torch.enable_grad():
            torch.testing.assert_close(model(ids)[0], expected, atol=1e-5, rtol=1e-5)
    # The other keeps what a gradient needs
    assert len(planned._plans) == 2
