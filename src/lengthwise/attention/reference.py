"""The equation written out, in float32 with whole matrices: the law every other implementation is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from lengthwise.attention.equation import Equation
from lengthwise.attention.statistics import RowStatistics


def logits(equation: Equation) -> Tensor:  # [batch, heads, queries, keys], unmasked
    """g * (scale * q.k + bias), in float32 (float64 stays)."""
    query, key = _wide(equation.query), _wide(equation.key)
    key = key.repeat_interleave(equation.group, dim=1)
    scores = equation.scale * query @ key.transpose(-1, -2)
    if equation.bias is not None:
        position = equation.visible.position[:, None]
        distance = torch.arange(equation.visible.keys, device=position.device) - position  # [queries, keys]
        scores = scores + _wide(equation.bias.at(distance))
    if equation.inverse_temperature is not None:
        scores = scores * equation.inverse_temperature.to(scores)[..., None]
    return scores


def reference(equation: Equation) -> tuple[Tensor, RowStatistics]:
    """Output [batch, heads, queries, value_size] and the statistics of every row."""
    scores = logits(equation)
    seen = equation.visible.mask()[:, None].expand(scores.shape)
    # finfo.min and not -inf: a row that sees nothing must become zeros, not NaN
    scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1).masked_fill(~seen, 0.0)
    weights = torch.nn.functional.dropout(weights, equation.dropout)
    value = _wide(equation.value).repeat_interleave(equation.group, dim=1)
    return (weights @ value).to(equation.query.dtype), RowStatistics.of_logits(scores, seen)


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()
