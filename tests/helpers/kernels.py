"""Equations that the GPU kernels must solve, and how their answers are judged; for Triton's interpreter and for real GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from lengthwise.attention import DistanceBias, Equation, RowStatistics, Visible, reference
from lengthwise.attention.reference import logits

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
# Relative norm of the output and of gradients, absolute error of the rest. A 16-bit weight is rounded to 2^-9 or 2^-12; the
# statistics never see one
OUTPUT = {BF16: 4e-3, FP16: 1e-3, FP32: 1e-5}
GRADIENT = {BF16: 1.5e-2, FP16: 4e-3, FP32: 1e-4}
P_MAX, ENTROPY, LOGIT = 1e-5, 1e-3, 1e-3


@dataclass(frozen=True)
class Case:
    """One equation with random numbers in it."""

    queries: int = 130
    keys: int | None = None
    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    size: int = 32
    dtype: torch.dtype = FP32
    radius: int | None = 5
    temperature: str = "none"  # none, one, head, row, signs
    mask: str = "full"
    loud: float = 1.0  # how large the queries are
    offset: int | None = None
    window: int = 17
    dropout: float = 0.0

    def equation(self, device: str = "cpu", seed: int = 0) -> Equation:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(device)

        keys = self.keys or self.queries
        query = self.loud * normal(self.batch, self.heads, self.queries, self.size)
        key, value = (normal(self.batch, self.kv_heads, keys, self.size) for _ in range(2))
        shapes = {"one": (), "head": (1, self.heads, 1), "row": (self.batch, 1, self.queries)}
        shape = shapes.get(self.temperature, (self.batch, self.heads, self.queries))
        g = normal(*shape)
        g = g if self.temperature == "signs" else 0.7 + 0.3 * g.abs()
        return Equation(
            query.to(self.dtype),
            key.to(self.dtype),
            value.to(self.dtype),
            moved(self.visible(), device),
            scale=self.size**-0.5,
            bias=None if self.radius is None else DistanceBias(normal(self.heads, 2 * self.radius + 1)),
            inverse_temperature=None if self.temperature == "none" else g,
            dropout=self.dropout,
        )

    def visible(self) -> Visible:
        n, keys = self.queries, self.keys or self.queries
        padding = torch.ones(self.batch, keys, dtype=torch.bool)
        if "padding" in self.mask:
            padding[0, keys - keys // 3 :] = False
            padding[-1, : keys // 5] = False
        if "hole" in self.mask:
            padding[0, keys // 2 : keys // 2 + 3] = False
        if self.mask == "packed":
            block = torch.arange(n)[None] // 40 * 40
            return Visible(block, (block + 40).clamp_max(keys), torch.arange(n), keys)
        if self.mask == "shuffled":
            order = torch.randperm(n, generator=torch.Generator().manual_seed(1))
            whole = Visible.build(n, keys, causal=True)
            return Visible(whole.start[:, order], whole.stop[:, order], whole.position[order], keys)
        return Visible.build(
            n,
            keys,
            causal="causal" in self.mask,
            window=self.window if "window" in self.mask else None,
            offset=self.offset,
            padding=None if bool(padding.all()) else padding,
        )


def moved(visible: Visible, device: str) -> Visible:
    if device == "cpu":
        return visible
    hidden = None if visible.hidden is None else visible.hidden.to(device)
    there = Visible(*(t.to(device) for t in (visible.start, visible.stop, visible.position)), visible.keys, hidden)
    if "full_from" in visible.facts:
        there.knowing(is_full=True, full_from=visible.full_from)
    return there


def exact(equation: Equation) -> Equation:
    """The same in float64."""
    bias = None if equation.bias is None else DistanceBias(equation.bias.table.double())
    query, key, value = (t.double() for t in (equation.query, equation.key, equation.value))
    return replace(equation, query=query, key=key, value=value, bias=bias)


def _poisoned(*shape: Any, **options: Any) -> Tensor:
    made = _empty(*shape, **options)
    return made.fill_(float("nan")) if made.is_floating_point() else made.fill_(-(2**30))


_empty = torch.empty


@contextmanager
def poison() -> Iterator[None]:
    """Fresh memory holds NaN: what a kernel leaves unwritten shows."""
    with patch.object(torch, "empty", _poisoned):
        yield


def assert_right(
    solve: Callable[[Equation], tuple[Tensor, RowStatistics | None]],
    equation: Equation,
    slack: float = 1.0,
    law_of: Callable[[Equation], tuple[Tensor, RowStatistics]] = reference,
) -> None:
    """Output and, if there are any, statistics against the law in float64. Errors of logits grow with them: `slack`."""
    with poison():
        output, rows = solve(equation)
    expected, law = law_of(exact(equation))
    assert output.shape == expected.shape
    assert output.dtype == equation.query.dtype
    assert not output.isnan().any()
    error = (output.double() - expected).norm() / expected.norm().clamp_min(1e-9)
    assert error < OUTPUT[equation.query.dtype], f"output {error:.1e}"
    if rows is not None:
        assert_rows(rows, law, slack)


def assert_rows(rows: RowStatistics, law: RowStatistics, slack: float = 1.0) -> None:
    for name, limit in (("lse", LOGIT), ("l_max", LOGIT), ("entropy", ENTROPY), ("p_max", P_MAX)):
        got, expected = getattr(rows, name), getattr(law, name)
        assert got.shape == expected.shape
        assert not got.isnan().any(), name
        error = (got.double() - expected).masked_fill(got == expected, 0.0).abs().max()
        assert error < slack * limit, f"{name} {error:.1e}"


def dropped(seed: Tensor, shape: tuple[int, int, int, int], rate: float) -> Tensor:
    """[batch, heads, queries, keys]: where the kernels' dropout takes a weight out. Their hash, in 64 bits."""
    word = 2**32 - 1

    def mixed(x: Tensor) -> Tensor:
        x = (x ^ (x >> 16)) * 0x7FEB352D & word
        x = (x ^ (x >> 15)) * 0x846CA68B & word
        return x ^ (x >> 16)

    batch, heads, queries, keys = shape
    one, two = (int(part) & word for part in seed)
    head, row, key = (torch.arange(n, device=seed.device) for n in (batch * heads, queries, keys))
    first, second = (mixed(row ^ mixed(head ^ half)[:, None])[..., None] for half in (one, two))
    x = key * 0x9E3779B1 + 0x7FEB352D & word
    x = (x ^ (x >> 16)) * second + first & word
    # As signed numbers, of which the lowest are dropped
    below = ((x + 2**31) % 2**32).double() / 2**32 < rate
    return below.view(shape)


def gone(equation: Equation, seed: int) -> Tensor:
    """What the next forward through the kernels takes out of this equation after `torch.manual_seed(seed)`."""
    from lengthwise.attention.triton.dropout import drawn

    torch.manual_seed(seed)
    return dropped(drawn(equation.query.device), (*equation.query.shape[:3], equation.visible.keys), equation.dropout)


def with_dropout(equation: Equation, gone: Tensor) -> Tensor:
    """The law's output with these weights taken out."""
    scores = logits(equation)
    seen = equation.visible.mask()[:, None].expand(scores.shape)
    weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~seen, 0.0)
    weights = weights.masked_fill(gone, 0.0) / (1 - equation.dropout)
    return weights @ equation.value.repeat_interleave(equation.group, 1)


def leaves_of(equation: Equation) -> tuple[Equation, list[Tensor]]:
    """The equation with every tensor a leaf that wants a gradient, and those leaves."""
    query, key, value = (t.detach().requires_grad_() for t in (equation.query, equation.key, equation.value))
    table = None if equation.bias is None else equation.bias.table.detach().requires_grad_()
    g = None if equation.inverse_temperature is None else equation.inverse_temperature.detach().requires_grad_()
    bias = None if table is None else DistanceBias(table)
    changed = replace(equation, query=query, key=key, value=value, bias=bias, inverse_temperature=g)
    return changed, [leaf for leaf in (query, key, value, table, g) if leaf is not None]


def assert_gradients(
    solve: Callable[[Equation], Tensor],
    equation: Equation,
    law_of: Callable[[Equation], Tensor] = lambda equation: reference(equation)[0],
) -> None:
    """Every gradient against autograd through the law in float64."""
    law, law_leaves = leaves_of(exact(equation))
    expected = law_of(law)
    up = torch.randn(expected.shape, generator=torch.Generator().manual_seed(7)).to(expected.device)
    wanted = torch.autograd.grad(expected, law_leaves, up.double())
    ours, leaves = leaves_of(equation)
    with poison():
        found = torch.autograd.grad(solve(ours), leaves, up.to(equation.query.dtype))
    for leaf, got, want in zip(leaves, found, wanted, strict=True):
        assert got.dtype == leaf.dtype
        assert got.shape == leaf.shape
        assert not got.isnan().any()
        # Gradients of a row that sees one key vanish: their error is then absolute
        error = (got.double() - want).norm() / want.norm().clamp_min(1e-2 * up.norm())
        assert error < GRADIENT[equation.query.dtype], f"{tuple(leaf.shape)} {error:.1e}"
    empty = (equation.visible.count == 0)[:, None].expand(equation.query.shape[:3])
    assert bool((found[0][empty] == 0).all())
