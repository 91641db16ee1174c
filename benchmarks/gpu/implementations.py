"""Implementations to compare, each called as somebody would who has queries, keys, values and T5's table of biases.

lengthwise computes softmax(g (q.k / sqrt(d) + bias)), from the table, and so do sdpa_dense_bias and eager, which are handed the
bias as a matrix made beforehand, and flex. torch_flash and cudnn have neither bias nor temperature: they are the mark to reach.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import dropout, scaled_dot_product_attention

from lengthwise.attention import DistanceBias, Equation, Visible, attention
from lengthwise.attention.bias import toeplitz
from lengthwise.attention.reference import reference
from lengthwise.attention.triton.direct import direct
from lengthwise.methods.positions.t5_bias import T5Bias

RADIUS = 128  # T5's buckets end here
CACHE = 60e6  # bytes of an H200's L2; inputs take turns until they are twice as many
LAYERS = 24  # calls that share a bias, which a model makes once a forward
SHARPENING = 1.5  # g, as a calibration of T5 finds at some 16,000 tokens


@dataclass(frozen=True)
class Setting:
    """Sizes and settings that stay the same from one length to the next."""

    device: torch.device
    implementation: str = "triton"  # of lengthwise
    heads: int = 32
    size: int = 64
    dtype: torch.dtype = torch.bfloat16
    dropout: float = 0.0

    @property
    def shape(self) -> str:
        return f"{self.heads} heads of {self.size}, {str(self.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class Inputs:
    """Random numbers; several sets where one would stay in the cache."""

    sets: list[tuple[Tensor, Tensor, Tensor]]  # q, k, v, each [1, heads, length, size]
    table: Tensor  # [heads, 2 * RADIUS + 1]
    g: Tensor  # [1, 1, 1]
    visible: Visible
    scale: float
    dropout: float = 0.0
    bias: list[DistanceBias] = field(default_factory=list)  # the one in use

    @classmethod
    def random(cls, length: int, setting: Setting, needs_grad: bool = False) -> Inputs:
        def normal(*shape: int) -> Tensor:
            made = torch.randn(shape, device=setting.device, dtype=torch.float32).to(setting.dtype)
            return made.requires_grad_(needs_grad)

        torch.manual_seed(length)
        size = (1, setting.heads, length, setting.size)
        of_one = 3 * setting.heads * length * setting.size * setting.dtype.itemsize
        many = 1 if setting.device.type != "cuda" else max(1, -(-int(2 * CACHE) // of_one))
        buckets = T5Bias(setting.heads, bidirectional=True).to(setting.device)
        torch.nn.init.normal_(buckets.table)
        return cls(
            sets=[(normal(*size), normal(*size), normal(*size)) for _ in range(many)],
            table=buckets.distance_bias(setting.heads, RADIUS)
            .detach()
            .to(setting.dtype)
            .contiguous()
            .requires_grad_(needs_grad),
            g=torch.full((1, 1, 1), SHARPENING, device=setting.device),
            visible=Visible.build(length, length, device=setting.device),
            scale=setting.size**-0.5,
            dropout=setting.dropout,
        )

    def of(self, call: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.sets[call % len(self.sets)]

    def equation(self, call: int) -> Equation:
        """Made anew for every call, as a layer does; the bias for every so many, as a model does."""
        if call % LAYERS == 0 or not self.bias:
            self.bias[:] = [DistanceBias(self.table)]
        return Equation(*self.of(call), self.visible, self.scale, self.bias[0], self.g, dropout=self.dropout)

    def matrix(self) -> Tensor:  # [1, heads, length, length]
        """The bias written out, the temperature in it."""
        length = self.visible.keys
        line = (DistanceBias(self.table.detach()).line(1 - length, length - 1) * SHARPENING).contiguous()
        return toeplitz(line, length, length).flip(-2)[None]


@dataclass(frozen=True)
class Attend:
    """One implementation, ready to be called."""

    forward: Callable[[int], Tensor]
    leaves: Callable[[int], tuple[Tensor, ...]]  # what a gradient is wanted for
    around: Callable[[], AbstractContextManager[object]] = nullcontext


def made(name: str, given: Inputs, setting: Setting) -> Attend:
    """The implementation called `name` on these inputs."""
    if name in ("lengthwise", "lengthwise+statistics"):
        return _ours(given, setting, statistics=name != "lengthwise")
    return {
        "accelerate": _accelerated,
        "torch_flash": _flash,
        "cudnn": _cudnn,
        "sdpa_dense_bias": _dense,
        "eager": _eager,
        "flex": _flex,
    }[name](given)


def errors(given: Inputs, setting: Setting, strip: int = 128) -> dict[str, float]:
    """Errors of lengthwise with statistics against the float32 reference, at the start, in the middle and at the end."""
    equation, length = given.equation(0), given.visible.keys
    output, rows = attention(equation, statistics=True, implementation=setting.implementation)
    assert rows is not None
    wide = replace(equation, query=equation.query.float(), key=equation.key.float(), value=equation.value.float())
    off, size, p_max, entropy = 0.0, 0.0, 0.0, 0.0
    for first in {0, max(0, length // 2 - strip // 2), max(0, length - strip)}:
        last = min(length, first + strip)
        right, right_rows = reference(wide.rows(first, last))
        mine = rows.map(lambda field, cut=slice(first, last): field[..., cut])
        off += float((output[:, :, first:last].double() - right.double()).square().sum())
        size += float(right.double().square().sum())
        p_max = max(p_max, float((mine.p_max - right_rows.p_max).abs().max()))
        entropy = max(entropy, float((mine.entropy - right_rows.entropy).abs().max()))
    return {"output": (off / size) ** 0.5, "p_max": p_max, "entropy": entropy}


def _ours(given: Inputs, setting: Setting, statistics: bool) -> Attend:
    def forward(call: int) -> Tensor:
        output, rows = attention(given.equation(call), statistics=statistics, implementation=setting.implementation)
        if rows is not None:
            _ = rows.p_max, rows.entropy
        return output

    return Attend(forward, lambda call: (*given.of(call), given.table))


def _accelerated(given: Inputs) -> Attend:
    """As an accelerated T5 calls it, with the bias and no temperature; its output is in the order the model goes on with."""
    bias = DistanceBias(given.table)
    wide = bias.widened[None, :, None].contiguous()

    def forward(call: int) -> Tensor:
        found = direct(*given.of(call), given.visible, wide, bias.radius, given.scale)
        assert found is not None
        return found

    return Attend(forward, given.of)


def _stock(given: Inputs, backend: SDPBackend) -> Attend:
    return Attend(
        lambda call: scaled_dot_product_attention(*given.of(call), dropout_p=given.dropout),
        given.of,
        partial(sdpa_kernel, backend),
    )


def _flash(given: Inputs) -> Attend:
    return _stock(given, SDPBackend.FLASH_ATTENTION)


def _cudnn(given: Inputs) -> Attend:
    return _stock(given, SDPBackend.CUDNN_ATTENTION)


def _dense(given: Inputs) -> Attend:
    matrix, scale = _matrix(given), given.scale * SHARPENING
    return Attend(
        lambda call: scaled_dot_product_attention(*given.of(call), attn_mask=matrix, dropout_p=given.dropout, scale=scale),
        lambda call: (*given.of(call), matrix),
    )


def _eager(given: Inputs) -> Attend:
    matrix, scale = _matrix(given), given.scale * SHARPENING

    def forward(call: int) -> Tensor:
        query, key, value = given.of(call)
        logits = query @ key.transpose(-1, -2) * scale
        logits = logits + matrix
        # As transformers' T5 does, in float32
        weights = torch.softmax(logits, -1, dtype=torch.float32).to(value.dtype)
        del logits
        if given.dropout:
            weights = dropout(weights, given.dropout)
        return weights @ value

    return Attend(forward, lambda call: (*given.of(call), matrix))


def _flex(given: Inputs) -> Attend:
    from torch._functorch import config
    from torch.nn.attention.flex_attention import flex_attention

    if given.dropout:
        raise ValueError("FlexAttention has no dropout")
    # Shapes are compiled in; without this a few lengths would exhaust what one function may be compiled for
    torch.compiler.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    table = given.table

    def biased(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return SHARPENING * (score + table[head, torch.clamp(key - query, -RADIUS, RADIUS) + RADIUS])

    return Attend(
        lambda call: compiled(*given.of(call), score_mod=biased, scale=given.scale),
        lambda call: (*given.of(call), table),
        # The backward is timed several times over one forward, whose memory it must not reuse
        partial(config.patch, donated_buffer=False),
    )


def _matrix(given: Inputs) -> Tensor:
    return given.matrix().requires_grad_(given.table.requires_grad)
