"""How the logarithm of the length grows, which several methods sharpen attention by."""

from __future__ import annotations

import math

from torch import Tensor


def log_growth(n: Tensor, train_length: int) -> Tensor:
    """ln n / ln n_train in float32; callers say which n they clamp."""
    return n.double().log().div(math.log(train_length)).float()
