"""The fused kernel against the law, in Triton's interpreter: every slot, odd lengths, memory that was never clean."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from lengthwise.attention import DistanceBias, Equation, RowStatistics, Visible, attention, reference
from lengthwise.attention.triton import forward, launch, planned
from tests.helpers.kernels import FP16, Case, assert_right, poison

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def triton(equation: Equation) -> tuple[Tensor, RowStatistics | None]:
    return attention(equation, statistics=True, implementation="triton")


CASES = {
    "a token": Case(1),
    "63 tokens": Case(63),
    "two sequences": Case(70, batch=2, heads=1, kv_heads=1),
    "130 tokens": Case(130, heads=1, kv_heads=1),
    "no bias": Case(radius=None, heads=1, kv_heads=1),
    "one number for every distance": Case(70, radius=0, heads=1, kv_heads=1),
    "a table as wide as the sequence": Case(70, radius=70),
    "half precision": Case(dtype=FP16, heads=1, kv_heads=1),
    "half precision, causal": Case(150, heads=1, kv_heads=1, dtype=FP16, mask="causal", temperature="row"),
    "size 8": Case(65, size=8),
    "size 64": Case(65, size=64, heads=1, kv_heads=1),
    "size 80": Case(65, size=80, heads=1, kv_heads=1),
    "size 96": Case(65, size=96, heads=1, kv_heads=1, mask="causal"),
    "size 128": Case(65, size=128, heads=1, kv_heads=1, dtype=FP16),
    "size 160": Case(40, size=160, heads=1, kv_heads=1, mask="causal", temperature="row"),
    "size 256": Case(40, size=256, heads=1, kv_heads=1),
    "size 256, half precision, a window": Case(
        70, size=256, heads=2, kv_heads=1, dtype=FP16, mask="causal window", radius=None, temperature="row"
    ),
    "one temperature": Case(70, heads=1, kv_heads=1, temperature="one"),
    "a temperature a head": Case(temperature="head"),
    "a temperature a row": Case(temperature="row"),
    "temperatures of both signs": Case(70, temperature="signs"),
    "causal": Case(mask="causal"),
    "causal, no bias, grouped heads": Case(heads=4, mask="causal", radius=None),
    "causal, a table as wide as the sequence": Case(radius=130, mask="causal", heads=1, kv_heads=1),
    "one key head for all": Case(70, heads=3, kv_heads=1, mask="causal"),
    "a causal window": Case(heads=1, kv_heads=1, mask="causal window"),
    "a window to both sides": Case(heads=1, kv_heads=1, mask="window", radius=None),
    "padding on both sides": Case(batch=2, heads=1, kv_heads=1, mask="padding"),
    "padding, causal, no bias": Case(batch=2, heads=1, kv_heads=1, mask="padding causal", radius=None),
    "a hole": Case(batch=2, heads=1, kv_heads=1, mask="hole"),
    "a hole, causal": Case(70, mask="hole causal", temperature="head"),
    "packed sequences": Case(heads=1, kv_heads=1, mask="packed"),
    "rows in any order": Case(96, heads=1, kv_heads=1, mask="shuffled"),
    "a filled cache": Case(7, 100, mask="causal"),
    "queries behind all keys": Case(40, 100, offset=130),
    "queries before all keys": Case(70, 40),
}


@pytest.mark.parametrize("name", CASES)
def test_output_and_statistics_are_the_laws(name: str) -> None:
    assert_right(triton, CASES[name].equation())


@pytest.mark.parametrize(
    "case", [Case(heads=1, kv_heads=1), Case(heads=1, kv_heads=1, mask="causal", radius=None)], ids=["bias", "causal"]
)
def test_the_output_is_the_same_without_statistics(case: Case) -> None:
    equation = case.equation()
    with poison():
        output, rows = attention(equation, implementation="triton")
    assert rows is None
    assert torch.equal(output, triton(equation)[0])


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning", "ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_logits_that_overflow_the_frozen_maximum_are_computed_again(mask: str) -> None:
    equation = Case(heads=1, kv_heads=1, loud=200.0, mask=mask, radius=5 if mask == "full" else None).equation()
    assert_right(triton, equation, slack=200.0)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning", "ignore:invalid value encountered:RuntimeWarning")
def test_a_late_key_far_above_all_others_is_found() -> None:
    """2^127 is 88 nats: the far key alone overflows what the near tile allowed for."""
    query, key, value = torch.zeros(1, 1, 130, 16), torch.zeros(1, 1, 130, 16), torch.randn(1, 1, 130, 16)
    query[..., 0], key[0, 0, 129, 0] = 1.0, 300.0
    output, rows = triton(Equation(query, key, value, Visible.build(130, 130)))
    assert rows is not None
    torch.testing.assert_close(output, value[:, :, 129:].expand_as(output))
    assert rows.l_max.unique().tolist() == pytest.approx([300.0], rel=1e-6)
    assert float(rows.entropy.abs().max()) < 1e-5


def test_rows_that_see_nothing_are_zero() -> None:
    equation = Case(batch=2, heads=1, kv_heads=1, mask="padding").equation()
    output, rows = triton(equation)
    assert rows is not None
    empty = (equation.visible.count == 0)[:, None]
    assert 0 < int(empty.sum()) < empty.numel()
    assert bool((output[empty] == 0).all())
    assert not bool(rows.sees[empty].any())
    assert rows.entropy[empty].unique().tolist() == [0.0]


def test_tensors_may_lie_in_memory_as_models_leave_them() -> None:
    equation = Case(70).equation()
    turned = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (equation.query, equation.key, equation.value))
    other = Equation(*turned, equation.visible, equation.scale, equation.bias)
    output, _ = triton(equation)
    assert torch.equal(triton(other)[0], output)
    # A model goes on with [batch, queries, heads * size]: that is a view of it
    assert output.transpose(1, 2).is_contiguous()


def test_a_size_that_is_not_the_last_axis_of_memory_is_copied() -> None:
    equation = Case(40).equation()
    query = equation.query.transpose(-1, -2).contiguous().transpose(-1, -2)
    assert query.stride(-1) != 1
    expected, _ = reference(equation)
    found, _ = triton(Equation(query, equation.key, equation.value, equation.visible, equation.scale, equation.bias))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_table_that_changes_in_place_is_read_again() -> None:
    equation = Case(40).equation()
    assert equation.bias is not None
    triton(equation)
    equation.bias.table.mul_(-2.0)
    assert_right(triton, equation)


def test_a_table_made_in_inference_mode_is_read() -> None:
    with torch.inference_mode():
        equation = Case(40).equation()
        bias = DistanceBias(torch.randn(2, 11))
        assert_right(triton, Equation(equation.query, equation.key, equation.value, equation.visible, bias=bias), slack=10.0)


def test_few_blocks_are_smaller_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "_plans", {})
    monkeypatch.setattr(forward, "multiprocessors", lambda device: 132)
    equation = Case(130, batch=2, mask="padding", dtype=FP16).equation()
    assert forward.prepared(launch.operands_of(equation, None), launch.NO_ROWS).tile.queries == 64
    assert_right(triton, equation)
