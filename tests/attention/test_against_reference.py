"""Every implementation against the float32 law, over every slot of the equation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

import lengthwise
from lengthwise.attention import (
    IMPLEMENTATIONS,
    DistanceBias,
    Equation,
    Visible,
    attention,
    blocks,
    blocks_gradient,
    reference,
    scan,
)
from lengthwise.attention.fused import why_not_fused
from lengthwise.errors import BadInput
from tests.conftest import logits, make, tokens
from tests.helpers.sweep import crossed

TOLERANCE = 1e-5
LENGTHS = (1, 63, 111, 1000)
TEMPERATURES = ("none", "one", "head", "row", "row and head")
MASKS = ("full", "causal", "window", "causal window", "left padding", "right padding", "causal left", "holes")
EVERYTHING = pytest.mark.parametrize(
    ("length", "mask", "temperature", "bias"), crossed(LENGTHS, MASKS, TEMPERATURES, (True, False), every=8)
)
SHUFFLED = ("shuffled", "shuffled causal", "shuffled left padding")


def make_visible(kind: str, batch: int, length: int) -> Visible:
    padding = torch.ones(batch, length, dtype=torch.bool)
    if "left" in kind:
        padding[0, : length // 3] = False
    if "right" in kind:
        padding[0, length - length // 3 :] = False
    if "holes" in kind:
        padding[0, length // 4 : length // 2] = False
    padded = "padding" in kind or "left" in kind or "holes" in kind
    visible = Visible.build(
        length,
        length,
        causal="causal" in kind,
        window=max(1, length // 5) if "window" in kind else None,
        padding=padding if padded else None,
    )
    if "shuffled" not in kind:
        return visible
    # The first query in its place: it alone must not vouch for the others
    order = torch.cat([torch.zeros(1).long(), 1 + torch.randperm(length - 1, generator=torch.Generator().manual_seed(length))])
    return Visible(visible.start[:, order], visible.stop[:, order], visible.position[order], length, visible.hidden)


def make_equation(
    length: int,
    *,
    mask: str = "full",
    temperature: str = "none",
    bias: bool = True,
    heads: int = 4,
    kv_heads: int = 4,
    batch: int = 2,
    key_size: int = 16,
    value_size: int = 24,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Equation:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    shapes = {
        "one": (1, 1, 1),
        "head": (1, heads, 1),
        "row": (batch, 1, length),
        "row and head": (batch, heads, length),
    }
    g = 1 + torch.rand(shapes[temperature], generator=generator) if temperature != "none" else None
    return Equation(
        query=normal(batch, heads, length, key_size),
        key=normal(batch, kv_heads, length, key_size),
        value=normal(batch, kv_heads, length, value_size),
        visible=make_visible(mask, batch, length),
        scale=key_size**-0.5,
        bias=DistanceBias(normal(heads, 2 * 9 + 1)) if bias else None,
        inverse_temperature=g,
    )


def assert_equal_to_reference(equation: Equation, implementation: str, statistics: bool) -> None:
    expected, rows = reference(equation)
    output, measured = attention(equation, statistics=statistics, implementation=implementation)
    torch.testing.assert_close(output, expected, atol=TOLERANCE, rtol=TOLERANCE)
    if statistics:
        assert measured is not None
        torch.testing.assert_close(measured.p_max, rows.p_max, atol=TOLERANCE, rtol=TOLERANCE)
        for field in ("l_max", "lse", "entropy"):
            torch.testing.assert_close(getattr(measured, field), getattr(rows, field), atol=TOLERANCE, rtol=TOLERANCE)


@EVERYTHING
def test_blockwise_equals_the_reference(length: int, mask: str, temperature: str, bias: bool) -> None:
    heads = 2 if length == 1000 else 4
    equation = make_equation(length, mask=mask, temperature=temperature, bias=bias, heads=heads, kv_heads=heads)
    assert_equal_to_reference(equation, "blockwise", statistics=True)


@EVERYTHING
def test_fused_equals_the_reference_or_says_why_not(length: int, mask: str, temperature: str, bias: bool) -> None:
    equation = make_equation(length, mask=mask, temperature=temperature, bias=bias, value_size=16)
    if (reason := why_not_fused(equation)) is None:
        assert_equal_to_reference(equation, "fused", statistics=False)
    else:
        with pytest.raises(BadInput, match="'fused' cannot run here"):
            attention(equation, implementation="fused")
        assert reason


def in_bfloat16(bias: bool, g: torch.Tensor | None = None) -> Equation:
    narrow = make_equation(48, bias=bias, value_size=16, dtype=torch.bfloat16)
    return replace(narrow, scale=24**-0.5, inverse_temperature=g)


def in_float32(equation: Equation) -> torch.Tensor:
    wide = {name: getattr(equation, name).float() for name in ("query", "key", "value")}
    return reference(replace(equation, **wide))[0]


# One number is a part of SDPA's scale; where there are more they are rounded into the queries
@pytest.mark.parametrize(("shape", "bias", "worse"), [
    ((1, 1, 1), False, 1.2), ((1, 1, 1), True, 1.2), ((1, 4, 1), False, 1.5), ((1, 4, 1), True, 1.5), ((2, 1, 48), False, 1.5),
])  # fmt: skip
def test_sixteen_bits_keep_the_temperature(shape: tuple[int, ...], bias: bool, worse: float) -> None:
    plain = in_bfloat16(bias)
    unavoidable = (attention(plain, implementation="fused")[0].float() - in_float32(plain)).abs().mean()
    base, above = (in_float32(in_bfloat16(bias, torch.full(shape, g))) for g in (1.05, 1.06))
    towards, steps = above - base, []
    # The last three are one number in bfloat16
    for g in (1.05, 1.051, 1.052, 1.053):
        equation = in_bfloat16(bias, torch.full(shape, g))
        output, expected = attention(equation, implementation="fused")[0].float(), in_float32(equation)
        assert (output - expected).abs().mean() < worse * unavoidable
        steps.append(float(((output - base) * towards).sum() / towards.square().sum()))
    assert steps == pytest.approx([0, 0.1, 0.2, 0.3], abs=0.04)


@pytest.mark.parametrize("bias", [True, False])
def test_without_a_temperature_sixteen_bits_lose_no_more_than_in_sdpa(bias: bool) -> None:
    equation = in_bfloat16(bias)
    distance = torch.arange(48) - torch.arange(48)[:, None]
    added = None if equation.bias is None else equation.bias.at(distance)[None]
    own = scaled_dot_product_attention(equation.query, equation.key, equation.value, attn_mask=added, scale=equation.scale)
    lost, lost_by_sdpa = (
        (found - in_float32(equation)).abs().mean() for found in (attention(equation, implementation="fused")[0], own)
    )
    assert lost < 1.05 * lost_by_sdpa


@pytest.mark.parametrize("temperature", ["one", "row"])
def test_a_negative_scale_or_temperature_turns_the_queries_around(temperature: str) -> None:
    equation = make_equation(63, temperature=temperature, bias=False, value_size=16)
    assert equation.inverse_temperature is not None
    for turned in (replace(equation, scale=-0.3), replace(equation, inverse_temperature=-equation.inverse_temperature)):
        assert_equal_to_reference(turned, "fused", statistics=False)


def test_fused_has_the_gradient_of_one_temperature() -> None:
    equation = make_equation(63, temperature="one", bias=False, value_size=16)
    assert equation.inverse_temperature is not None
    g = equation.inverse_temperature.requires_grad_()
    found, expected = (
        torch.autograd.grad(attention(equation, implementation=name)[0].square().sum(), g)[0] for name in ("fused", "reference")
    )
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("mask", ["full", "left padding", "right padding"])
@pytest.mark.parametrize("temperature", ["none", "one", "head"])
def test_a_padded_t5_batch_takes_the_fused_path(mask: str, temperature: str) -> None:
    assert why_not_fused(make_equation(63, mask=mask, temperature=temperature)) is None


@pytest.mark.parametrize("mask", ["holes", "causal holes", "causal left holes", "right holes"])
@pytest.mark.parametrize("temperature", ["none", "one", "head"])
@pytest.mark.parametrize("size", [8, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_t5_batch_with_holes_takes_the_fused_path(mask: str, temperature: str, size: int, dtype: torch.dtype) -> None:
    # The second sequence has no hole
    equation = make_equation(63, mask=mask, temperature=temperature, key_size=size, value_size=size, dtype=dtype)
    assert why_not_fused(equation) is None
    bare = replace(equation, visible=make_visible(mask.replace("holes", "padding"), 2, 63))
    expected, (output, _), (without, _) = in_float32(equation), attention(equation), attention(bare)
    lost, unavoidable = (output.float() - expected).abs().mean(), (without.float() - in_float32(bare)).abs().mean()
    assert lost < 1.1 * unavoidable + 1e-7
    hidden = equation.visible.count == 0
    assert hidden.any()
    assert not output.transpose(1, 2)[hidden].any()


@pytest.mark.parametrize("mask", ["causal", "causal left"])
def test_a_t5_decoder_takes_the_fused_path(mask: str) -> None:
    assert why_not_fused(make_equation(63, mask=mask, temperature="head")) is None


@pytest.mark.parametrize("mask", ["causal", "causal left"])
def test_a_decoder_with_a_temperature_a_row_takes_the_fused_path(mask: str) -> None:
    assert why_not_fused(make_equation(63, mask=mask, temperature="row", bias=False)) is None


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 70),
    groups=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    batch=st.integers(1, 3),
    key_size=st.integers(1, 33),
    mask=st.sampled_from(MASKS + SHUFFLED),
    temperature=st.sampled_from(TEMPERATURES),
    bias=st.booleans(),
    block=st.sampled_from([1, 64, 2**21]),
    seed=st.integers(0, 2**16),
)
def test_any_shape_equals_the_reference(
    length: int, groups: int, kv_heads: int, batch: int, key_size: int, mask: str, temperature: str, bias: bool, block: int,
    seed: int,
) -> None:  # fmt: skip
    equation = make_equation(
        length, mask=mask, temperature=temperature, bias=bias, heads=groups * kv_heads, kv_heads=kv_heads, batch=batch,
        key_size=key_size, value_size=key_size, seed=seed,
    )  # fmt: skip
    whole_block = blocks.CPU_BLOCK
    blocks.CPU_BLOCK = block
    try:
        assert_equal_to_reference(equation, "blockwise", statistics=True)
        assert_equal_to_reference(equation, "auto", statistics=False)
    finally:
        blocks.CPU_BLOCK = whole_block


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("temperature", "statistics"), [("head", True), ("head", False), ("row", False)])
def test_every_gradient_equals_the_reference(
    mask: str, temperature: str, statistics: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "CPU_BLOCK", 2**12)  # Several blocks of rows
    equation = make_equation(111, mask=mask, temperature=temperature, heads=4, kv_heads=2)
    assert equation.bias is not None
    assert equation.inverse_temperature is not None
    leaves = [equation.query, equation.key, equation.value, equation.bias.table, equation.inverse_temperature]
    for leaf in leaves:
        leaf.requires_grad_()
    gradients = []
    for implementation in ("reference", "blockwise"):
        output, rows = attention(equation, statistics=statistics, implementation=implementation)
        weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
        loss = (output * weights).sum() + (rows.entropy.sum() if rows is not None else 0)
        gradients.append(torch.autograd.grad(loss, leaves))
    for expected, actual in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
def test_queries_of_a_filled_cache_stand_at_the_end_of_the_keys(causal: bool) -> None:
    whole = make_equation(63, mask="causal" if causal else "full", temperature="row")
    expected, _ = reference(whole)
    cached = whole.rows(50, 63)
    assert cached.visible.position.tolist() == list(range(50, 63))
    torch.testing.assert_close(attention(cached)[0], expected[:, :, 50:], atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (3, 10), (0, 7), (3, 7), (5, 5)])
def test_one_query_reads_only_the_keys_of_its_run(start: int, stop: int) -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 1, 8, generator=generator)
    key, value = (torch.randn(2, 2, 10, 8, generator=generator) for _ in range(2))
    visible = Visible.one_row(start, stop, 9, 10)
    right, _ = reference(Equation(query, key, value, visible))
    if start < stop:
        key[:, :, [*range(start), *range(stop, 10)]] = torch.nan
    torch.testing.assert_close(attention(Equation(query, key, value, visible), implementation="fused")[0], right)


@pytest.mark.parametrize("mask", ["full", "causal", "left padding", *SHUFFLED])
@pytest.mark.parametrize("bias", [True, False])
def test_a_scan_equals_one_run_a_temperature(mask: str, bias: bool) -> None:
    equation = make_equation(111, mask=mask, bias=bias)
    g = torch.tensor([1.0, 1.3, 2.5])
    rows = scan(equation, g[:, None, None, None])
    for index, value in enumerate(g):
        single = Equation(**{**vars(equation), "inverse_temperature": value.reshape(1, 1, 1)})
        _, expected = reference(single)
        for field in ("l_max", "lse", "entropy", "p_max"):
            torch.testing.assert_close(getattr(rows, field)[index], getattr(expected, field), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mask", SHUFFLED)
@pytest.mark.parametrize("temperature", ["none", "head", "row"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_queries_may_stand_in_any_order(mask: str, temperature: str, bias: bool) -> None:
    equation = make_equation(111, mask=mask, temperature=temperature, bias=bias, value_size=16)
    for implementation in ("blockwise", "auto"):
        assert_equal_to_reference(equation, implementation, statistics=False)
    assert_equal_to_reference(equation, "blockwise", statistics=True)
    assert why_not_fused(equation) is not None


def test_a_bias_of_queries_in_any_order_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match="'fused' cannot run here: the queries do not stand one after the other"):
        attention(make_equation(9, mask="shuffled"), implementation="fused")


@pytest.mark.parametrize("mask", ["full", "causal", "causal left"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_statistics_are_the_same_under_autocast(mask: str, bias: bool) -> None:
    equation = make_equation(63, mask=mask, bias=bias, temperature="row")
    temperatures = torch.tensor([0.7, 1.5]).view(2, 1, 1, 1)

    def found() -> list[torch.Tensor]:
        solved = [attention(equation, statistics=True, implementation=name) for name in ("reference", "blockwise")]
        every = [rows for _, rows in solved if rows is not None] + [scan(equation, temperatures)]
        return [output for output, _ in solved] + [getattr(rows, f) for rows in every for f in ("l_max", "lse", "entropy")]

    plain = found()
    with torch.autocast("cpu", torch.bfloat16):
        narrow = found()
    assert all(torch.equal(a, b) for a, b in zip(plain, narrow, strict=True))


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_autocast_narrows_what_fused_reads_and_leaves_the_bias(bias: bool) -> None:
    equation = make_equation(63, bias=bias, temperature="one", value_size=16)
    narrow = replace(equation, **{name: getattr(equation, name).bfloat16() for name in ("query", "key", "value")})
    expected, _ = attention(narrow, implementation="fused")
    for one in (equation, replace(equation, value=narrow.value), narrow):
        with torch.autocast("cpu", torch.bfloat16):
            output, _ = attention(one, implementation="fused")
        assert output.dtype == one.query.dtype
        assert torch.equal(output.bfloat16(), expected)


def test_gradients_are_the_same_under_autocast() -> None:
    equation = make_equation(63, mask="causal")
    leaves = [equation.query.requires_grad_(), equation.key.requires_grad_(), equation.value.requires_grad_()]

    def loss() -> torch.Tensor:
        output, rows = attention(equation, statistics=True, implementation="blockwise")
        assert rows is not None
        return output.square().sum() + rows.entropy.sum()

    expected = torch.autograd.grad(loss(), leaves)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = loss()
    assert all(torch.equal(a, b) for a, b in zip(torch.autograd.grad(narrow, leaves), expected, strict=True))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_compiled_equation_is_the_same_under_autocast() -> None:
    equation = make_equation(63, mask="causal", temperature="one")

    def entropy(query: torch.Tensor) -> torch.Tensor:
        _, rows = attention(replace(equation, query=query), statistics=True, implementation="reference")
        assert rows is not None
        return rows.entropy

    expected = entropy(equation.query)
    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.compile(entropy, backend="aot_eager")(equation.query)
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")
def test_a_model_is_measured_and_extended_under_autocast() -> None:
    model, ids = make("llama"), tokens(48)
    with lengthwise.extend(model, "adaptive"):
        expected, plain = logits(model, ids), lengthwise.row_statistics(model, ids)
        with torch.autocast("cpu", torch.bfloat16):
            found, narrow = logits(model, ids), lengthwise.row_statistics(model, ids)
    torch.testing.assert_close(found.float(), expected, atol=0.03, rtol=0)
    for field in ("p_max", "entropy", "l_max"):
        torch.testing.assert_close(getattr(narrow, field), getattr(plain, field), atol=0.02, rtol=0)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_values_of_another_type_leave_the_output_the_queries_type(bias: bool) -> None:
    equation = make_equation(63, bias=bias, value_size=16)
    mixed = replace(equation, value=equation.value.bfloat16())
    for implementation in ("auto", "blockwise"):
        assert_equal_to_reference(mixed, implementation, statistics=False)
    with pytest.raises(BadInput, match="queries are float32, keys float32 and values bfloat16"):
        attention(mixed, implementation="fused")


@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("change", [{"inverse_temperature": torch.zeros(1, 1, 1)}, {"scale": 0.0}], ids=["g", "scale"])
def test_without_sharpness_fused_averages(mask: str, change: dict[str, Any]) -> None:
    equation = make_equation(63, mask=mask, bias=False, value_size=16)
    assert_equal_to_reference(replace(equation, **change), "fused", statistics=False)


@pytest.mark.parametrize("mask", ["full", "causal", "left padding"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", [(), (1,), (63,), (4, 1), (1, 63), (4, 63)], ids=str)
def test_a_temperature_may_have_fewer_dimensions(mask: str, bias: bool, shape: tuple[int, ...]) -> None:
    g = 1 + torch.rand(shape, generator=torch.Generator().manual_seed(0))
    equation = make_equation(63, mask=mask, bias=bias, value_size=16)
    expected, _ = reference(replace(equation, inverse_temperature=g.expand(2, 4, 63)))
    given = replace(equation, inverse_temperature=g)
    torch.testing.assert_close(reference(given)[0], expected)
    assert_equal_to_reference(given, "blockwise", statistics=True)
    if why_not_fused(given) is None:
        assert_equal_to_reference(given, "fused", statistics=False)
    cut = attention(given.rows(10, 20), implementation="blockwise")[0]
    torch.testing.assert_close(cut, expected[:, :, 10:20], atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("sizes", [(2, 0, 5), (2, 5, 0), (0, 5, 5), (2, 0, 0)], ids=str)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nothing_to_compute_is_zeros(sizes: tuple[int, int, int], implementation: str, dtype: torch.dtype) -> None:
    batch, queries, keys = sizes
    query = torch.randn(batch, 4, queries, 16, dtype=dtype, requires_grad=True)
    key, value = (torch.randn(batch, 2, keys, size, dtype=dtype) for size in (16, 24))
    bias = DistanceBias(torch.randn(4, 5))
    equation = Equation(query, key, value, Visible.build(queries, keys), bias=bias, inverse_temperature=torch.tensor(2.0))
    output, rows = attention(equation, statistics=True, implementation=implementation)
    assert rows is not None
    assert torch.equal(output, torch.zeros(batch, 4, queries, 24, dtype=dtype))
    (slope,) = torch.autograd.grad(output.sum(), query)
    assert torch.equal(slope, torch.zeros_like(query))
    scanned = scan(equation, torch.ones(3, 1, 1, 1))
    for found, shape in ((rows, (batch, 4, queries)), (scanned, (3, batch, 4, queries))):
        assert torch.equal(found.lse, torch.full(shape, float("-inf")))
        assert torch.equal(found.l_max, found.lse)
        assert torch.equal(found.entropy, torch.zeros(shape))


def test_rows_that_see_nothing_are_zero_and_finite() -> None:
    equation = make_equation(63, mask="left padding", temperature="row")
    for implementation in ("reference", "blockwise"):
        output, rows = attention(equation, statistics=True, implementation=implementation)
        assert rows is not None
        assert torch.equal(output[0, :, :21], torch.zeros_like(output[0, :, :21]))
        assert not bool(rows.sees[0, :, :21].any())
        assert bool(rows.sees[1].all())
        assert torch.isfinite(output).all()


def test_dropout_keeps_the_expected_output() -> None:
    equation = make_equation(63)
    dropped = Equation(**{**vars(equation), "dropout": 0.5})
    torch.manual_seed(0)
    mean = torch.stack([attention(dropped)[0] for _ in range(400)]).mean(0)
    assert (mean - reference(equation)[0]).abs().mean() < 0.02


def test_an_unknown_implementation_is_refused() -> None:
    with pytest.raises(BadInput, match="no attention implementation 'flash'"):
        attention(make_equation(4), implementation="flash")


def test_training_takes_as_many_rows_at_once_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []

    def counted(function: object, query: torch.Tensor, block: Equation, **_: object) -> tuple[torch.Tensor, object]:
        # A checkpoint looks for devices among its arguments, not inside them
        assert query is block.query
        rows.append(block.visible.queries)
        return reference(block)

    monkeypatch.setattr(blocks_gradient, "checkpoint", counted)
    monkeypatch.setattr(blocks_gradient, "CPU_BLOCK", 2 * 16 * 64 * 24)  # 24 rows of 64 keys for 16 sequences of 2 heads
    query, key, value = (torch.randn(16, 2, 64, 4, requires_grad=True) for _ in range(3))
    attention(Equation(query, key, value, Visible.build(64, 64), dropout=0.1), implementation="blockwise")
    assert rows == [24, 24, 16]
