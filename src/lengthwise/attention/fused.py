"""PyTorch's own SDPA computes the equation where it can: inference on whole sequences, padded on either side, on any device.

A bias goes in as a Toeplitz view: a line of 2L - 1 numbers a head read as an L x L matrix, never copied, so that extra memory
is O(L).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from lengthwise.attention import autocast
from lengthwise.attention.bias import toeplitz
from lengthwise.attention.equation import Equation

WIDEST = 256  # values that SDPA's flash kernels take
# Its square is beyond any logit, and float16 holds it
FAR = 2.0**15


def why_not_fused(equation: Equation) -> str | None:
    """None when `fused` can compute the equation, else the reason in words."""
    if equation.dropout > 0:
        return "dropout is on"
    types = [tensor.dtype for tensor in (equation.query, equation.key, equation.value)]
    if len(set(types)) > 1 and not _narrowed(equation):
        return "queries are {}, keys {} and values {}".format(*(str(kind).removeprefix("torch.") for kind in types))
    if equation.query.is_cuda and equation.value.shape[-1] > WIDEST:
        return f"the GPU's SDPA is slow for values of {equation.value.shape[-1]} numbers"
    if equation.bias is not None:
        if equation.query.device.type != "cpu":
            return "only the CPU's SDPA reads a Toeplitz view"
        if equation.needs_grad:
            return "a gradient is needed through the biased logits"
        if not equation.one_temperature_a_head:
            return "the temperature changes along the sequence and the logits have a bias"
        if not equation.visible.in_line:
            return "the queries do not stand one after the other and the logits have a bias"
        if equation.visible.spans_over_holes is None and equation.visible.causal_spans_over_holes is None:
            return "the mask is neither one span a sequence nor causal in one span"
    elif equation.visible.spans is None and equation.visible.causal_spans is None and equation.visible.queries != 1:
        return "the mask is neither one span a sequence nor causal in one span"
    return None


def _narrowed(equation: Equation) -> bool:
    """Whether autocast gives queries, keys and values its type on the way in."""
    types = {tensor.dtype for tensor in (equation.query, equation.key, equation.value)}
    return torch.float64 not in types and autocast.is_on(equation.query.device.type)


def fused(equation: Equation) -> Tensor:  # [batch, heads, queries, value_size]
    """Solve the equation by PyTorch's SDPA. Check `why_not_fused` first."""
    device, dtype = equation.query.device.type, equation.query.dtype
    # Under autocast all but the bias, whose view it would write out as a whole matrix
    narrowed = _narrowed(equation)
    narrow = torch.get_autocast_dtype(device) if narrowed else dtype
    best = autocast.fast_type(narrow, device)
    if narrowed or best != dtype:
        given = (equation.query, equation.key, equation.value)
        query, key, value = (tensor.to(narrow).to(best) for tensor in given)
        equation = replace(equation, query=query, key=key, value=value)
    with autocast.off(device):
        return _solved(equation).to(dtype)


def _solved(equation: Equation) -> Tensor:
    """Solve one batch entry at a time, so that padding is never read."""
    query, scale = _sharpened(equation)
    key, value, shared = equation.key, equation.value, equation.group > 1
    alone = equation.visible.queries == 1 and equation.bias is None
    if alone and (run := equation.visible.run) is not None and run[0] < run[1]:
        # All that a query in a window, or in a static cache, sees
        if run != (0, key.shape[2]):
            key, value = key[:, :, slice(*run)], value[:, :, slice(*run)]
        return one_sees_all(query, key, value, scale)
    if alone:
        return _masked(query, scale, equation)
    if shared:
        key, value = (tensor.repeat_interleave(equation.group, 1) for tensor in (key, value))
    visible, size = equation.visible, value.shape[-1]
    if visible.hidden is not None:
        query, key, value = _hiding(query, key, value, visible.hidden)
    spans = visible.spans_over_holes
    causal = spans is None
    spans = (visible.causal_spans_over_holes if causal else spans) or []
    equation = replace(equation, query=query, key=key, value=value, scale=scale)
    if len(set(spans)) == 1:
        # One span for all: no need to take the batch apart
        output = _span(equation, slice(None), spans[0], causal)
    else:
        output = torch.cat([_span(equation, slice(b, b + 1), span, causal) for b, span in enumerate(spans)])
    if visible.hidden is None:
        return output
    return output[..., :size].masked_fill((visible.count == 0)[:, None, :, None], 0.0)


def _hiding(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one more dimension, in which hidden keys, [batch or 1, keys], stand far behind all queries.

    So a matrix of queries x keys need not say it. To the logits of the other keys it adds 0.
    """
    behind = torch.where(hidden[:, None, :, None], -FAR, 0.0).to(key.dtype).expand(*key.shape[:3], 1)
    return torch.cat([query, torch.full_like(query[..., :1], FAR)], -1), torch.cat([key, behind], -1), pad(value, (0, 1))


def one_sees_all(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """SDPA of one query that sees every key, without cuDNN, which prepares anew, 60 ms on an H200, for every number of keys.

    That number grows with every token, and PyTorch takes cuDNN first where it may take either.
    """
    if _avoids_cudnn(query, key, value):
        output: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, scale=scale)[0]
        return output
    return scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=key.size(1) < query.size(1))


def _avoids_cudnn(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether PyTorch would take cuDNN and its other kernels would do."""
    if not query.is_cuda or torch.is_grad_enabled() or query.dtype not in (torch.bfloat16, torch.float16):
        return False
    size, in_line = query.size(-1), query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    return in_line and size == value.size(-1) and size % 8 == 0 and size <= WIDEST and _may_choose(query.get_device())


def _may_choose(device: int) -> bool:
    """Whether nobody has ruled out any."""
    cuda = torch.backends.cuda
    on = cuda.cudnn_sdp_enabled() and cuda.flash_sdp_enabled() and cuda.mem_efficient_sdp_enabled()  # type: ignore[no-untyped-call]
    return bool(on) and _has_flash(device)


@lru_cache
def _has_flash(device: int) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


def one_query(equation: Equation) -> Tensor:
    """Solve an equation of one query without a bias while a graph is traced: nothing is asked of a device."""
    return _masked(*_sharpened(equation), equation)


def _masked(query: Tensor, scale: float, equation: Equation) -> Tensor:
    """One query a head; heads that share a key head are its rows, so that no key is copied."""
    seen, key, value = equation.visible.mask()[:, None], equation.key, equation.value
    rows = query.reshape(query.shape[0], key.shape[1], -1, query.shape[-1])
    if _avoids_cudnn(rows, key, value) and not torch.compiler.is_compiling():
        output = _efficient(rows, key, value, seen, scale)
    else:
        output = scaled_dot_product_attention(rows, key, value, attn_mask=seen, scale=scale)
    # cuDNN gives a row that sees nothing a mean of values, others NaN
    return output.masked_fill(~seen.any(-1, keepdim=True), 0.0).reshape(*query.shape[:3], -1)


def _efficient(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, scale: float) -> Tensor:
    """By the kernel that PyTorch takes for masks where there is no cuDNN; rows of its mask begin at multiples of 16 bytes."""
    keys = key.shape[2]
    mask = query.new_full((*seen.shape[:-1], -(-keys // 8) * 8), float("-inf"))[..., :keys].masked_fill_(seen, 0.0)
    mask = mask.expand(*query.shape[:3], keys)
    found: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(query, key, value, mask, False, scale=scale)[0]
    return found


def _sharpened(equation: Equation) -> tuple[Tensor, float]:
    """Queries and a scale, >= 0, that carry g between them; g itself is never rounded to 16 bits."""
    query, scale, g = equation.query, equation.scale, equation.inverse_temperature
    if g is not None and _at_hand(g):
        scale *= float(g)
    elif g is not None:
        # g is float32, and so is the product until it is rounded
        query = (query * g[..., None]).to(query.dtype)
    if scale == 0:
        # Times a causal mask's -inf it would be NaN
        return query * 0.0, 1.0
    # Flash kernels take the maximum before they scale
    return (query, scale) if scale >= 0 else (-query, -scale)


def _at_hand(g: Tensor) -> bool:
    """Whether g is one number that can be read without waiting for a GPU and without leaving a graph."""
    return g.numel() == 1 and g.device.type == "cpu" and not g.requires_grad and not torch.compiler.is_compiling()


def _span(equation: Equation, entry: slice, span: tuple[int, int], causal: bool) -> Tensor:
    """Solve one span; queries and scale carry g already, the bias not yet."""
    first, last = span
    length, keys, scale = last - first, equation.visible.keys, equation.scale
    query, key, value = (tensor[entry, :, first:last] for tensor in (equation.query, equation.key, equation.value))
    if equation.bias is None or length == 0:
        output = scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)
    else:
        # In float32 beside narrow queries too: SDPA takes it, and it keeps g
        wide = torch.promote_types(query.dtype, torch.float32)
        line = equation.bias.line(1 - length, length - 1).to(wide)[None]  # [1, heads, 2 * length - 1]
        if equation.inverse_temperature is not None:
            g = equation.inverse_temperature
            line = line * g[entry if g.shape[0] > 1 else slice(None)].to(wide)
        if causal:
            # Distances ahead of a query
            line = line.masked_fill(torch.arange(1 - length, length) > 0, float("-inf"))
        matrix = toeplitz(line, length, length)
        output = scaled_dot_product_attention(query.flip(2), key, value, attn_mask=matrix, scale=scale).flip(2)
    return output if length == keys else pad(output, (0, 0, first, keys - last))
