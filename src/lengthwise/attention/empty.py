"""No rows, or no keys for them: an output of zeros, and statistics of a row that sees nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from lengthwise.attention.equation import Equation
from lengthwise.attention.statistics import RowStatistics


def nothing_in(equation: Equation) -> bool:
    return 0 in equation.query.shape[:3] or equation.key.shape[2] == 0


def nothing(equation: Equation, statistics: bool) -> tuple[Tensor, RowStatistics | None]:
    query, value = equation.query, equation.value
    output = query.new_zeros(*query.shape[:3], value.shape[-1])
    if equation.needs_grad:
        # Gradients of nothing are zeros, not an error
        table = equation.bias.table if equation.bias else None
        given = [tensor for tensor in (query, equation.key, value, table, equation.inverse_temperature) if tensor is not None]
        output = output + sum(tensor[..., :0].sum() for tensor in given)
    wide = torch.promote_types(query.dtype, torch.float32)
    return output, no_rows(equation, wide) if statistics else None


def no_rows(equation: Equation, dtype: torch.dtype, *temperatures: int) -> RowStatistics:
    shape = (*temperatures, *equation.query.shape[:3])
    zeros = equation.query.new_zeros(shape, dtype=dtype)
    return RowStatistics(zeros, torch.full_like(zeros, float("-inf")), zeros.clone())
