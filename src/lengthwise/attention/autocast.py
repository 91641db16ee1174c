"""torch.autocast and the equation: logits are float32 whatever it says. In bfloat16 a hidden one is -inf, its entropy NaN.

And the other way round: types that a CPU has no instructions for are computed in float32.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch


def is_on(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def off(device: str) -> AbstractContextManager[object]:
    return torch.autocast(device, enabled=False) if is_on(device) else nullcontext()


def fast_type(dtype: torch.dtype, device: str) -> torch.dtype:
    """The type to multiply matrices in: float32 on a CPU that has no instructions for `dtype`, where it is far faster."""
    return torch.float32 if device == "cpu" and dtype in (torch.bfloat16, torch.float16) and _is_slow(dtype) else dtype


@lru_cache
def _is_slow(dtype: torch.dtype) -> bool:
    ops = torch.ops.mkldnn
    known = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}[dtype]
    return not (torch._C._has_mkldnn and hasattr(ops, known) and bool(getattr(ops, known)()))
