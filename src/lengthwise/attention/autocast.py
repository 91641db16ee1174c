"""torch.autocast and the equation: logits are float32 whatever it says. In bfloat16 a hidden one is -inf, its entropy NaN."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def is_on(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def off(device: str) -> AbstractContextManager[object]:
    return torch.autocast(device, enabled=False) if is_on(device) else nullcontext()
