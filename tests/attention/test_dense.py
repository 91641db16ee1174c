"""Gradients on a CPU by whole matrices: those of the law, gathered once where layers share a bias."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from lengthwise.attention import DistanceBias, Equation, Visible, attention, autocast, dense
from lengthwise.attention.dispatch import chosen
from lengthwise.errors import BadInput
from tests.helpers.kernels import BF16, FP16, Case, assert_gradients, leaves_of

CASES = {
    "full": Case(40),
    "padding": Case(40, batch=2, mask="padding", temperature="row"),
    "a hole": Case(40, batch=2, mask="padding hole", temperature="head"),
    "causal, grouped heads": Case(40, mask="causal", kv_heads=1),
    "a window": Case(40, mask="causal window"),
    "queries after a cache": Case(7, keys=40, mask="causal"),
}


@pytest.mark.parametrize("name", CASES)
def test_every_gradient_is_the_laws(name: str) -> None:
    assert_gradients(lambda equation: attention(equation, implementation="dense")[0], CASES[name].equation())


def test_it_is_chosen_for_gradients_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    equation, _ = leaves_of(Case(40).equation())
    assert chosen(equation, False, "auto") == "dense"
    assert chosen(equation, True, "auto") != "dense"
    with torch.no_grad():
        assert chosen(equation, False, "auto") != "dense"
        with pytest.raises(BadInput, match="it is for gradients on a CPU"):
            attention(equation, implementation="dense")
    monkeypatch.setattr(dense, "MOST", 1)
    with pytest.raises(BadInput, match="3,200 logits are too many"):
        attention(equation, implementation="dense")


def test_rows_that_see_nothing_have_no_gradient_in_half_precision_either() -> None:
    whole = Case(40, batch=2, mask="padding", dtype=FP16).equation()
    # Logits of -28: with the least number of all that is hidden they would be -inf in a whole row
    whole = replace(whole, query=torch.full_like(whole.query, -5.0), key=torch.ones_like(whole.key))
    equation, leaves = leaves_of(whole)
    output = attention(equation, implementation="dense")[0]
    gradients = torch.autograd.grad(output.float().square().sum(), leaves)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][0, :, -(40 // 3) :].any()


@pytest.mark.parametrize(("way", "slow"), [("dense", True), ("dense", False), ("fused", True)])
def test_gradients_and_types_that_a_cpu_has_no_instructions_for_are_computed_in_float32(
    monkeypatch: pytest.MonkeyPatch, way: str, slow: bool
) -> None:
    monkeypatch.setattr(autocast, "_is_slow", lambda _: slow)
    narrow = Case(40, batch=2, mask="padding", dtype=BF16).equation()
    wide = replace(narrow, query=narrow.query.float(), key=narrow.key.float(), value=narrow.value.float())
    with torch.set_grad_enabled(way == "dense"):
        found, expected = (attention(leaves_of(e)[0], implementation=way)[0] for e in (narrow, wide))
    assert torch.equal(found, expected.bfloat16())


def test_temperatures_and_biases_are_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autocast, "_is_slow", lambda _: False)
    narrow = Case(40, dtype=BF16, temperature="row").equation()
    assert narrow.bias is not None
    # Logits of 0 but for a bias around 30, of which 8 bits keep quarters: whatever differs was rounded beside the products
    narrow = replace(narrow, query=torch.zeros_like(narrow.query), bias=DistanceBias(30 + narrow.bias.table))
    wide = replace(narrow, query=narrow.query.double(), key=narrow.key.double(), value=narrow.value.double())
    found = attention(leaves_of(narrow)[0], implementation="dense")[0]
    expected = attention(wide, implementation="reference")[0]
    assert float((found.detach() - expected).abs().max() / expected.abs().max()) < 2**-7


def test_a_table_in_16_bits_has_its_gradient() -> None:
    equation = Case(40, batch=2, mask="causal", dtype=BF16).equation()
    assert equation.bias is not None
    assert_gradients(
        lambda equation: attention(equation, implementation="dense")[0],
        replace(equation, bias=DistanceBias(equation.bias.table.to(BF16))),
    )


def test_layers_share_the_matrix_of_a_bias() -> None:
    query = torch.randn(1, 2, 20, 8, requires_grad=True)
    bias = DistanceBias(torch.randn(2, 11, requires_grad=True))
    equation = Equation(query, query, query, Visible.build(20, 20), bias=bias)
    once = attention(equation, implementation="dense")[0]
    twice = once + attention(replace(equation, scale=0.5), implementation="dense")[0]
    assert len(vars(bias)["_matrices"]) == 1
    (gradient,) = torch.autograd.grad(twice.sum(), bias.table)
    assert gradient.isfinite().all()


def test_a_layer_that_is_computed_again_need_not_find_the_matrix() -> None:
    query, table = torch.randn(1, 2, 20, 8, requires_grad=True), torch.randn(2, 11, requires_grad=True)
    bias = DistanceBias(table)

    def layer(query: torch.Tensor) -> torch.Tensor:
        equation = Equation(query, query, query, Visible.build(20, 20), bias=bias)
        return attention(equation, implementation="dense")[0]

    expected = torch.autograd.grad(layer(layer(query)).square().sum(), (query, table))
    again = checkpoint(layer, layer(query), use_reentrant=False)
    vars(bias)["_matrices"].clear()
    for found, gradient in zip(torch.autograd.grad(again.square().sum(), (query, table)), expected, strict=True):
        torch.testing.assert_close(found, gradient)


def test_a_bias_serves_several_steps_and_may_change_between_them() -> None:
    equation, leaves = leaves_of(Case(40).equation())
    found = []
    for _ in range(2):
        output = attention(equation, implementation="dense")[0]
        found.append((output.detach(), torch.autograd.grad(output.square().sum(), leaves)))
    assert all(torch.equal(one, other) for one, other in zip(found[0][1], found[1][1], strict=True))
    assert equation.bias is not None
    before = attention(equation, implementation="dense")[0]
    with torch.no_grad():
        equation.bias.table[0, 3] += 1.0
    assert not torch.equal(attention(equation, implementation="dense")[0], before)


def test_dropped_weights_leave_a_gradient_that_gives_back_the_output() -> None:
    equation, leaves = leaves_of(Case(40, dropout=0.5).equation())
    value = leaves[2]
    output = attention(equation, implementation="dense")[0]
    (d_value,) = torch.autograd.grad(output, value, output.detach())
    torch.testing.assert_close((d_value * value).sum(), output.square().sum())
