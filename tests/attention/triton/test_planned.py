"""What a first call prepared gives, with other numbers of its shapes, what the long way gives; in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lengthwise.attention.equation import Equation
from lengthwise.attention.operators_run import Given
from lengthwise.attention.triton import backward, forward, launch, planned
from lengthwise.attention.triton.backward import Needs
from tests.helpers.kernels import FP16, Case

pytest.importorskip("triton")

CASES = {
    "full": Case(70),
    "without a bias": Case(40, radius=None),
    "padding, two sequences": Case(40, batch=2, mask="padding"),
    "holes": Case(40, batch=2, mask="padding hole"),
    "causal, grouped heads": Case(33, heads=4, kv_heads=2, mask="causal", dtype=FP16),
    "a temperature a row": Case(33, temperature="row"),
    "dropout": Case(40, dropout=0.3),
}
ALL = Needs(True, True, True, True, False)


@pytest.fixture(autouse=True)
def _no_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "_plans", {})


def operands(equation: Equation) -> Any:
    seed = torch.tensor([1, 2], dtype=torch.int32) if equation.dropout else None
    return launch.operands_of(equation, equation.inverse_temperature, seed)


def solved(given: Any, want: int) -> Any:
    known = planned.known(given, want)
    output, rows = planned.by_heads(given, want, known)
    assert planned.by_rows(given, want, known)[0].transpose(1, 2).stride() == output.stride()
    return output, rows


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_the_long_way_gives(name: str) -> None:
    needs = ALL._replace(table=CASES[name].radius is not None)
    for seed in range(2):
        given = operands(CASES[name].equation(seed=seed))
        out, lse = solved(given, launch.ONLY_LSE)
        expected = forward.forward(given, launch.ONLY_LSE)
        torch.testing.assert_close((out, lse), expected, atol=0, rtol=0)
        grad = torch.randn_like(out)
        found = planned.backward(given, grad, out, lse, needs)
        expected_d = backward.backward(given, grad, out, lse, needs)
        torch.testing.assert_close(found[:3], expected_d[:3], atol=0, rtol=0)
        if needs.table:
            torch.testing.assert_close(found[3], expected_d[3], atol=1e-5, rtol=1e-5)
    assert len(planned._plans) == 2


def test_other_shapes_strides_and_gradients_have_plans_of_their_own() -> None:
    for case in (Case(20), Case(21), Case(20, batch=2), Case(20, batch=2, mask="padding"), Case(20, radius=7)):
        solved(operands(case.equation()), launch.NO_ROWS)
    assert len(planned._plans) == 5
    solved(operands(Case(20).equation()), launch.ONLY_LSE)
    assert len(planned._plans) == 6


def test_gradients_of_a_temperature_take_the_long_way() -> None:
    given = operands(Case(20, temperature="row").equation())
    out, lse = solved(given, launch.ONLY_LSE)
    for _ in range(2):
        found = planned.backward(given, torch.ones_like(out), out, lse, ALL._replace(g=True))
        assert found[4] is not None
    assert len(planned._plans) == 1


def test_a_graphs_temperature_of_16_bits_is_read_in_32() -> None:
    query, g = torch.zeros(1, 2, 8, 16), torch.full((1, 2, 1), 1.5, dtype=torch.bfloat16)
    given = Given(query, query, query, None, g, None, None, None, None, 0, 0, 1.0, 0.0, "triton")
    for is_planned in (False, True):
        ready, known = given.for_kernels(False, launch.NO_ROWS)
        assert (ready.g.dtype, known[0] is not None) == (torch.float32, is_planned)
        planned.by_heads(ready, launch.NO_ROWS, known)
