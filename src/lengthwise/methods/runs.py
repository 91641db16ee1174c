"""Cut every row's run of keys; what the methods that see or place keys by their distance have in common."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lengthwise.attention.visible import Visible


def within(visible: Visible, first: Tensor, last: Tensor) -> Visible:
    """Cut each row's run to the keys `first` ... `last - 1`, both broadcastable to [batch, queries]."""
    stop = torch.minimum(visible.stop, last).clamp_min(0)
    return replace(visible, start=torch.minimum(torch.maximum(visible.start, first), stop), stop=stop)
