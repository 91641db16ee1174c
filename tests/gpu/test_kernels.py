"""The kernels on a GPU against the law in float64: all sizes and types, odd lengths, memory that was never clean."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lengthwise.attention import DistanceBias, Equation, RowStatistics, Visible, attention, blocks, reference, scan
from lengthwise.attention.dispatch import chosen as chosen_for
from tests.helpers.kernels import (
    BF16,
    FP16,
    FP32,
    OUTPUT,
    Case,
    assert_gradients,
    assert_right,
    assert_rows,
    exact,
    gone,
    leaves_of,
    poison,
    with_dropout,
)

BASE = Case(1000, heads=4, kv_heads=4, size=64, dtype=BF16, radius=91, window=257)
SIZES, TYPES = (32, 64, 80, 96, 128, 160, 256), (BF16, FP16, FP32)


def with_rows(equation: Equation) -> tuple[Tensor, RowStatistics | None]:
    return attention(equation, statistics=True, implementation="triton")


def output_of(equation: Equation) -> Tensor:
    return attention(equation, implementation="triton")[0]


@pytest.fixture
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.usefixtures("_no_gradients")
@pytest.mark.parametrize(("size", "dtype"), [*itertools.product(SIZES, TYPES)], ids=str)
def test_every_size_and_type(size: int, dtype: torch.dtype) -> None:
    queries = 333 if dtype == FP32 else 1000
    assert_right(with_rows, replace(BASE, queries=queries, size=size, dtype=dtype).equation("cuda"))


@pytest.mark.usefixtures("_no_gradients")
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 63, 64, 65, 111, 127, 128, 129, 191, 193, 255, 1023, 2049, 4097])
def test_every_length(length: int) -> None:
    assert_right(with_rows, replace(BASE, queries=length, heads=2, kv_heads=2).equation("cuda"))


MASKS = {
    "no bias": replace(BASE, radius=None),
    "two sequences": replace(BASE, queries=300, batch=2, heads=3, kv_heads=3),
    "one number for every distance": replace(BASE, radius=0),
    "a table as wide as the sequence": replace(BASE, radius=1000),
    "causal": replace(BASE, mask="causal"),
    "causal, no bias, grouped heads": replace(BASE, mask="causal", radius=None, kv_heads=2),
    "causal, a table as wide as the sequence": replace(BASE, mask="causal", radius=1000),
    "one key head for all": replace(BASE, mask="causal", radius=None, kv_heads=1, size=128),
    "a causal window": replace(BASE, mask="causal window"),
    "a window to both sides": replace(BASE, queries=777, mask="window"),
    "a window, no bias": replace(BASE, mask="causal window", radius=None),
    "padding on both sides": replace(BASE, batch=2, mask="padding"),
    "padding, causal, one key head": replace(BASE, queries=640, batch=2, mask="padding causal", kv_heads=1),
    "a hole": replace(BASE, queries=500, batch=2, mask="hole"),
    "packed sequences": replace(BASE, mask="packed"),
    "rows in any order": replace(BASE, queries=500, mask="shuffled"),
    "a filled cache": replace(BASE, queries=7, keys=1000, mask="causal"),
    "queries behind all keys": replace(BASE, queries=200, keys=1000, offset=5000),
    "one temperature": replace(BASE, temperature="one"),
    "a temperature a head": replace(BASE, temperature="head"),
    "a temperature a row": replace(BASE, temperature="row"),
    "a temperature a row, causal": replace(BASE, temperature="row", mask="causal", radius=None),
    "temperatures of both signs": replace(BASE, queries=333, temperature="signs"),
    "temperatures of both signs, half precision": replace(BASE, queries=333, temperature="signs", dtype=FP16),
    "float32, causal, a temperature a row": replace(BASE, queries=333, dtype=FP32, mask="causal", temperature="row"),
}


@pytest.mark.usefixtures("_no_gradients")
@pytest.mark.parametrize("name", MASKS)
def test_every_mask_and_temperature(name: str) -> None:
    assert_right(with_rows, MASKS[name].equation("cuda"))


@pytest.mark.usefixtures("_no_gradients")
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_without_statistics_the_output_is_the_laws_too(mask: str) -> None:
    assert_right(
        lambda e: (output_of(e), None), replace(BASE, mask=mask, radius=91 if mask == "full" else None).equation("cuda")
    )


BARE = replace(BASE, radius=None, size=128)
FUSED = {
    "a whole sequence": BARE,
    "causal, grouped heads": replace(BARE, mask="causal", kv_heads=2),
    "padding": replace(BARE, queries=640, batch=2, mask="padding"),
    "one query and a filled cache": replace(BARE, queries=1, keys=1000, mask="causal"),
    "one query and a padded cache": replace(BARE, queries=1, keys=1000, batch=2, mask="padding causal", kv_heads=2),
}


@pytest.mark.usefixtures("_no_gradients")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("temperature", ["none", "one", "head", "row"])
@pytest.mark.parametrize("name", FUSED)
def test_torchs_own_kernels_take_a_temperature(name: str, temperature: str, dtype: torch.dtype) -> None:
    """The way that `auto` takes where there is no bias and few rows, in cached decoding above all."""
    equation = replace(FUSED[name], temperature=temperature, dtype=dtype).equation("cuda")
    assert chosen_for(equation, False, "auto") == "fused"
    assert_right(lambda e: attention(e, implementation="fused"), equation)


@pytest.mark.usefixtures("_no_gradients")
def test_a_temperature_at_hand_keeps_its_bits_in_torchs_own_kernels() -> None:
    """One thousandth is less than a bf16 query can tell."""
    equation = replace(BARE, queries=1, keys=1000, loud=8.0, dtype=BF16).equation("cuda")
    outputs = [
        attention(replace(equation, inverse_temperature=torch.tensor([[[g]]])), implementation="fused")[0] for g in (1.0, 1.001)
    ]
    assert not torch.equal(*outputs)


@pytest.mark.usefixtures("_no_gradients")
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_logits_that_overflow_the_frozen_maximum_are_computed_again(mask: str) -> None:
    assert_right(with_rows, replace(BASE, loud=300.0, mask=mask).equation("cuda"), slack=300.0)


@pytest.mark.usefixtures("_no_gradients")
def test_tensors_may_begin_anywhere_in_memory() -> None:
    equation = BASE.equation("cuda")
    query, key, value = (torch.cat([t[..., :1], t], -1)[..., 1:] for t in (equation.query, equation.key, equation.value))
    assert query.data_ptr() % 16
    assert_right(with_rows, replace(equation, query=query, key=key, value=value))


@pytest.mark.usefixtures("_no_gradients")
def test_more_than_two_to_the_31_numbers() -> None:
    """17,000,000 tokens through a window, 2.2e9 numbers a tensor; rows of the beginning and of the end against the law."""
    length, window = 17_000_000, 64
    query, key, value = (torch.empty(1, 2, length, 64, dtype=BF16, device="cuda").normal_() for _ in range(3))
    visible = Visible.build(length, length, causal=True, window=window, device="cuda")
    output, rows = attention(Equation(query, key, value, visible, 0.125), statistics=True, implementation="triton")
    assert rows is not None
    for first in (0, length // 2 + 1, length - 200):
        keys = slice(max(0, first - window), first + 200)
        near = Visible.build(200, keys.stop - keys.start, causal=True, window=window, device="cuda")
        picked = (query[:, :, first : first + 200], key[:, :, keys], value[:, :, keys])
        expected, law = reference(exact(Equation(*picked, near, 0.125)))
        found = output[:, :, first : first + 200].double()
        assert (found - expected).norm() / expected.norm() < OUTPUT[BF16]
        assert_rows(rows.map(lambda field, at=first: field[..., at : at + 200]), law)


GRADIENTS = {
    "all keys": BASE,
    "all keys, a temperature a head": replace(BASE, temperature="head"),
    "no bias": replace(BASE, radius=None),
    # Nothing depends on such a bias, so that its gradient is rounding alone
    "one number for every distance": replace(BASE, queries=333, radius=0, dtype=FP32),
    "a table as wide as the sequence": replace(BASE, queries=500, radius=500),
    "causal, grouped heads, a temperature a row": replace(BASE, mask="causal", kv_heads=2, temperature="row"),
    "padding, a temperature a head": replace(BASE, queries=640, batch=2, mask="padding", temperature="head"),
    "a hole": replace(BASE, queries=500, mask="hole"),
    "a window": replace(BASE, queries=777, mask="causal window", radius=None),
    "packed sequences": replace(BASE, queries=500, mask="packed"),
    "rows in any order": replace(BASE, queries=500, mask="shuffled"),
    "size 128, one key head": replace(BASE, queries=512, kv_heads=1, size=128),
    "size 128, causal": replace(BASE, queries=512, kv_heads=2, size=128, mask="causal", radius=None),
    "size 80": replace(BASE, queries=500, size=80),
    "size 160": replace(BASE, queries=500, size=160),
    "size 256, a causal window": replace(BASE, queries=777, size=256, kv_heads=2, mask="causal window", radius=None),
    "size 256, float32": replace(BASE, queries=200, size=256, dtype=FP32),
    "size 32": replace(BASE, queries=500, size=32, radius=None),
    "half precision": replace(BASE, queries=500, dtype=FP16, mask="causal", temperature="row"),
    "float32": replace(BASE, queries=300, dtype=FP32, temperature="row"),
    "a token": replace(BASE, queries=1),
    "a filled cache": replace(BASE, queries=7, keys=700, mask="causal"),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_every_gradient_is_the_laws(name: str) -> None:
    assert_gradients(output_of, GRADIENTS[name].equation("cuda"))


DROPPED = {
    "all keys": replace(BASE, temperature="head", dropout=0.1),
    "no bias": replace(BASE, radius=None, dropout=0.5),
    "two sequences, causal, grouped heads": replace(BASE, batch=2, mask="causal", kv_heads=2, temperature="row"),
    "padding": GRADIENTS["padding, a temperature a head"],
    "a hole": GRADIENTS["a hole"],
    "a window": GRADIENTS["a window"],
    "rows in any order": GRADIENTS["rows in any order"],
    "size 128": replace(BASE, queries=512, size=128),
    "size 80": GRADIENTS["size 80"],
    "size 160": GRADIENTS["size 160"],
    "half precision": GRADIENTS["half precision"],
    "float32": GRADIENTS["float32"],
    "logits that overflow the frozen maximum": replace(BASE, loud=300.0),
    "4,097 tokens": replace(BASE, queries=4097, heads=1, kv_heads=1),
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropout_takes_the_same_weights_out_of_output_and_gradients(name: str) -> None:
    case = DROPPED[name]
    equation, seed = (case if case.dropout else replace(case, dropout=0.3)).equation("cuda"), 11
    out = gone(equation, seed)

    def seeded(given: Equation) -> tuple[Tensor, RowStatistics | None]:
        torch.manual_seed(seed)
        return attention(given, implementation="triton")

    assert_right(seeded, equation, case.loud, law_of=lambda law: (with_dropout(law, out), reference(law)[1]))
    if case.loud == 1.0:
        assert_gradients(lambda given: seeded(given)[0], equation, lambda law: with_dropout(law, out))


def test_the_block_path_drops_the_same_weights_when_it_computes_them_again() -> None:
    equation = replace(BASE, queries=200, dtype=FP32, dropout=0.5).equation("cuda")
    found = []
    for solve in (reference, lambda given: attention(given, implementation="blockwise")):
        ours, leaves = leaves_of(equation)
        torch.manual_seed(11)
        found.append(torch.autograd.grad(solve(ours)[0].square().sum(), leaves))
    for got, want in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, want, atol=1e-3, rtol=1e-3)


def test_gradients_are_the_same_every_time() -> None:
    ours, leaves = leaves_of(replace(BASE, mask="causal", kv_heads=2, temperature="row").equation("cuda"))
    first, second = (torch.autograd.grad(output_of(ours).square().sum(), leaves) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


SCANS = {
    "all keys": (BASE, 4),
    "three": (BASE, 3),
    "six": (replace(BASE, queries=333), 6),
    "causal, no bias, grouped heads": (replace(BASE, mask="causal", radius=None, kv_heads=2), 3),
    "causal": (replace(BASE, mask="causal"), 3),
    "padding": (replace(BASE, batch=2, mask="padding"), 3),
    "a hole": (replace(BASE, queries=500, mask="hole"), 2),
    "size 128": (replace(BASE, size=128), 3),
    "size 256": (replace(BASE, size=256), 4),
    "size 256, float32": (replace(BASE, queries=333, size=256, dtype=FP32), 3),
    "float32": (replace(BASE, queries=333, dtype=FP32), 3),
    "loud": (replace(BASE, loud=300.0), 2),
}


@pytest.mark.usefixtures("_no_gradients")
@pytest.mark.parametrize("name", SCANS)
def test_a_scan_gives_the_laws_statistics_at_every_temperature(name: str) -> None:
    case, count = SCANS[name]
    equation = case.equation("cuda")
    g = torch.linspace(0.7, 1.6, count * case.heads, device="cuda").view(count, 1, case.heads, 1)
    with poison():
        rows = scan(equation, g)
    for index, one in enumerate(g):
        law = reference(replace(exact(equation), inverse_temperature=one.double()))[1]
        assert_rows(rows.map(lambda field, at=index: field[at]), law, slack=2 * case.loud)


@pytest.mark.usefixtures("_no_gradients")
def test_no_sharpness_at_all_leaves_visible_keys_alike() -> None:
    equation = replace(BASE, batch=2, mask="padding causal").equation("cuda")
    rows = scan(equation, torch.zeros(1, 1, 1, 1, device="cuda"))
    count = equation.visible.count[:, None].expand(rows.lse[0].shape)
    seen = count > 0
    torch.testing.assert_close(rows.entropy[0][seen], count[seen].float().log(), atol=1e-4, rtol=1e-5)
    assert_rows(rows, blocks.scan(equation, torch.zeros(1, 1, 1, 1, device="cuda")))


def test_auto_chooses_the_kernel_where_it_is_faster_or_alone() -> None:
    def chosen(case: Case, statistics: bool = False, **changes: object) -> str:
        return chosen_for(replace(case.equation("cuda"), **changes), statistics, "auto")

    bare = replace(BASE, radius=None)
    assert chosen(BASE) == "triton"
    assert chosen(bare) == "fused"
    assert chosen(bare, statistics=True) == "triton"
    assert chosen(replace(bare, mask="causal")) == "fused"
    assert chosen(replace(bare, mask="causal window")) == "triton"
    assert chosen(replace(bare, queries=4096, heads=1, kv_heads=1)) == "triton"
    assert chosen(replace(bare, queries=1, keys=4096, heads=1, kv_heads=1)) == "fused"
    assert chosen(BASE, dropout=0.1) == "triton"
    assert chosen(bare, dropout=0.1) == "triton"


@pytest.mark.usefixtures("_no_gradients")
def test_a_layer_does_not_wait_for_the_gpu() -> None:
    """Once a mask is known, nothing on the way to the launch asks the device for a number."""
    equations = [replace(BASE, mask=mask, temperature="head").equation("cuda") for mask in ("full", "causal", "padding")]
    for equation in equations:
        with_rows(equation)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for equation in equations:
            assert equation.bias is not None
            with_rows(replace(equation, bias=DistanceBias(equation.bias.table)))
    finally:
        torch.cuda.set_sync_debug_mode("default")


PRECISE = {
    "heads of 64": replace(BASE, queries=1000, dtype=FP32),
    "heads of 128": replace(BASE, queries=600, dtype=FP32, size=128, temperature="row"),
    "causal, padded": replace(BASE, queries=600, batch=2, dtype=FP32, mask="padding causal"),
}


@pytest.mark.parametrize("name", PRECISE)
def test_float32_has_the_error_of_float32(name: str) -> None:
    """Output under 2e-6, gradients under 2e-5, of the norm; the scan's statistics as ever."""
    equation = PRECISE[name].equation("cuda")
    with torch.no_grad():
        expected = reference(exact(equation))[0]
        error = (output_of(equation).double() - expected).norm() / expected.norm()
    assert error < 2e-6, f"{error:.1e}"
    law, law_leaves = leaves_of(exact(equation))
    ours, leaves = leaves_of(equation)
    up = torch.randn_like(equation.query)
    wanted = torch.autograd.grad(reference(law)[0], law_leaves, up.double())
    for got, want in zip(torch.autograd.grad(output_of(ours), leaves, up), wanted, strict=True):
        error = (got.double() - want).norm() / want.norm()
        assert error < 2e-5, f"{tuple(got.shape)} {error:.1e}"


def test_tf32_is_used_where_pytorch_allows_it() -> None:
    equation = PRECISE["heads of 64"].equation("cuda")
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        with torch.no_grad():
            expected = reference(exact(equation))[0]
            error = (output_of(equation).double() - expected).norm() / expected.norm()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    # Numbers of ten bits
    assert 2e-5 < error < 2e-3, f"{error:.1e}"
