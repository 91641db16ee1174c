"""When the kernels run, when they say why not, and how they are launched; in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import lengthwise
from lengthwise.attention import DistanceBias, Equation, Rest, Visible, attention, dispatch
from lengthwise.attention.triton import launch
from lengthwise.attention.triton.launch import why_no_scan, why_not_triton
from lengthwise.errors import BadInput
from tests.conftest import logits, shared, tokens
from tests.helpers.kernels import Case

pytest.importorskip("triton")
from lengthwise.attention.triton import operands


def equation(value_size: int | None = None, **changes: Any) -> Equation:
    whole = Case(8).equation()
    return replace(whole, **changes) if value_size is None else replace(whole, value=torch.zeros(1, 2, 8, value_size))


def wide(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(1, 2, 8, 16, dtype=dtype) for name in ("query", "key", "value")}


def wide_table() -> Equation:
    many, table = torch.zeros(1, 2, 1, 16).expand(1, 2, 20_000, 16), torch.zeros(2, 60_001, requires_grad=True)
    return Equation(many, many, many, Visible.build(20_000, 20_000), bias=DistanceBias(table))


REFUSED: dict[str, Callable[[], Equation]] = {
    "dropout leaves nothing": lambda: equation(dropout=1.0),
    "values of 24 numbers differ in size from keys of 32": lambda: equation(24),
    "heads of 264 numbers are larger than 256": lambda: Case(8, size=264).equation(),
    "queries are float64 and keys float64": lambda: equation(**wide(torch.float64)),
    "queries are float32 and keys float16": lambda: equation(key=torch.zeros(1, 2, 8, 32, dtype=torch.float16)),
    "queries are float32 and values float16": lambda: equation(value=torch.zeros(1, 2, 8, 32, dtype=torch.float16)),
    "the mask speaks of 9 keys and 8 are given": lambda: equation(visible=Visible.build(8, 9)),
    "its scale -1 is negative": lambda: equation(scale=-1.0),
    "there is nothing to compute": lambda: equation(**{name: torch.zeros(1, 2, 8, 0) for name in ("query", "key", "value")}),
    "the gradient of a bias of 60,001 distances needs 1,200,020,000 numbers a head": wide_table,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_the_kernel_cannot_compute_is_refused_by_name(reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        attention(REFUSED[reason](), implementation="triton")
    assert str(caught.value).startswith(f"attention implementation 'triton' cannot run here: {reason}")


def test_gradients_of_statistics_are_refused() -> None:
    learning = equation(query=torch.zeros(1, 2, 8, 32, requires_grad=True))
    assert why_not_triton(learning) is None
    assert "gradient" in (why_not_triton(learning, statistics=True) or "")
    with torch.no_grad():
        assert why_not_triton(learning, statistics=True) is None


def test_a_scan_minds_neither_values_nor_dropout() -> None:
    assert why_no_scan(equation(24)) is None
    assert why_no_scan(equation(dropout=0.1)) is None


def test_a_scan_of_more_rows_than_it_can_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MOST_ROWS", 16)
    assert why_no_scan(equation()) == "16 rows are more than it can count"
    assert why_not_triton(equation()) is None


def test_rows_of_several_runs_are_merged() -> None:
    whole = Case(40, mask="causal", radius=None, temperature="row").equation()
    seen = whole.visible
    middle = (seen.stop // 2).clamp_min(seen.start)
    first = replace(whole, visible=Visible(seen.start, middle, seen.position, 40))
    second = Rest(whole.query, whole.key, whole.value, Visible(middle, seen.stop, seen.position, 40))
    expected, law = attention(whole, statistics=True, implementation="reference")
    output, rows = attention(replace(first, more=(second,)), statistics=True, implementation="triton")
    assert rows is not None
    assert law is not None
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(rows.entropy, law.entropy, atol=1e-5, rtol=1e-5)


def test_without_a_gpu_it_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    q = torch.zeros(1, 1, 4, 16)
    equation = Equation(q, q, q, Visible.build(4, 4))
    attention(equation)
    reason = "the tensors are on cpu and the kernels need a CUDA device"
    with pytest.raises(BadInput) as refused:
        attention(equation, implementation="triton")
    assert str(refused.value) == f"attention implementation 'triton' cannot run here: {reason}; use 'blockwise' or 'auto'"


@pytest.mark.parametrize(("size", "shared", "runs"), [(128, 99 * 1024, True), (160, 99 * 1024, False), (256, 227 * 1024, True)])
def test_large_heads_need_a_gpu_with_much_shared_memory(
    monkeypatch: pytest.MonkeyPatch, size: int, shared: int, runs: bool
) -> None:
    properties = SimpleNamespace(shared_memory_per_block_optin=shared)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    launch._why_not_on.cache_clear()
    launch.shared_memory.cache_clear()
    reason = launch._why_not_on(torch.device("cuda"), size > launch.USUAL_HEAD)
    launch._why_not_on.cache_clear()
    launch.shared_memory.cache_clear()
    assert reason == (None if runs else "a GPU has 101,376 bytes of shared memory, too few for heads larger than 128")


# (size, keys, queries, gradient): where no bias is added
OURS = {(64, 4096, 4096, False), (64, 8192, 4096, True), (32, 4096, 128, False)}
TORCHS = {
    (64, 2048, 2048, False),
    (64, 4096, 4096, True),
    (64, 8192, 1, False),
    (128, 32768, 32768, False),
    (256, 8192, 8192, True),
}


@pytest.mark.parametrize("case", sorted(OURS | TORCHS))
def test_pytorchs_kernels_take_what_they_compute_faster(case: tuple[int, int, int, bool]) -> None:
    size, keys, queries, learns = case
    key = torch.zeros(1, 1, 1, size).expand(1, 1, keys, size)
    query = torch.zeros(1, 1, 1, size, requires_grad=learns).expand(1, 1, queries, size)
    bare = Equation(query, key, key, Visible.build(queries, keys, offset=0))
    # Rows that see a window are ours: PyTorch's kernels do not compute them
    windowed = replace(bare, visible=Visible.build(queries, keys, causal=True, window=9))
    assert dispatch.worth_a_kernel(bare, statistics=False) == (case in OURS)
    assert dispatch.worth_a_kernel(windowed, statistics=False) == (queries > 1 or case in OURS)
    assert dispatch.worth_a_kernel(bare, statistics=True)


METHODS = {"t5": "constant:tau=0.7", "llama": "log:train_length=32", "llama sinks": "streaming_llm:window=24"}


@pytest.mark.parametrize("name", METHODS)
def test_an_extended_model_says_the_same_through_the_kernel(name: str) -> None:
    model, ids = shared(name.split()[0]), tokens(40)
    mask = torch.ones_like(ids)
    mask[0, 35:] = 0
    said = []
    for implementation in ("blockwise", "triton"):
        with lengthwise.extend(model, METHODS[name], implementation=implementation):
            said.append(logits(model, ids, mask))
    torch.testing.assert_close(said[1], said[0], atol=1e-4, rtol=1e-4)


class Kernel:
    """Stands for a compiled kernel and for one still to be compiled: both are launched by subscript."""

    def __init__(self) -> None:
        self.compiled, self.launches = 0, 0

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def compile_and_launch(*_: Any, **options: Any) -> Kernel:
            self.compiled += bool(options)
            self.launches += 1
            return self

        return compile_and_launch


def test_a_launch_asks_triton_for_a_variant_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "INTERPRETED", False)
    monkeypatch.setattr(operands, "_ready", {})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    kernel, tile, tensor = Kernel(), operands.Tile(64, 64, 4, 2), torch.zeros(64)
    for tensors, numbers in (((tensor,), (16, 2)), ((tensor,), (16, 3)), ((tensor[1:],), (16, 2)), ((tensor.half(),), (16, 2))):
        before = kernel.compiled
        for _ in range(3):
            operands.launch(kernel, 5, tensors, numbers, tile)
        assert kernel.compiled == before + 1
    assert kernel.launches == 12


def test_float32_products_follow_pytorchs_own_switch() -> None:
    assert launch.products(torch.bfloat16) is None
    assert launch.products(torch.float32) == "tf32x3"
    switch = torch.backends.cuda.matmul
    before = switch.fp32_precision
    try:
        switch.fp32_precision = "tf32"
        assert launch.products(torch.float32) == "tf32"
    finally:
        switch.fp32_precision = before
