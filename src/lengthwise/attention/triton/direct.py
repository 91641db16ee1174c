"""The shortest way to the forward kernel, for biased attention without gradient, temperature, dropout and statistics."""

from __future__ import annotations

from torch import Tensor

from lengthwise.attention.bias import DistanceBias
from lengthwise.attention.equation import Equation
from lengthwise.attention.triton import launch
from lengthwise.attention.visible import Visible


def direct(
    query: Tensor, key: Tensor, value: Tensor, visible: Visible, wide: Tensor, radius: int, scale: float
) -> Tensor | None:  # [batch, queries, heads, size]
    """The output, in the order a model goes on with; None where the kernel cannot compute it. `wide` is a widened table."""
    if not launch.installed():
        return None
    planned = launch.kernels()
    runs, hidden, first = visible.for_kernels
    rest = (scale, runs, first, hidden, wide, max(radius, 1), None, visible.facts)
    operands = planned.Operands(query, key, value, visible.keys, *rest)
    known = planned.known(operands, launch.NO_ROWS)
    if known[0] is None:
        equation = Equation(query, key, value, visible, scale, DistanceBias.of_widened(wide[0, :, 0], radius))
        if launch.why_not_triton(equation) is not None or any(t.stride(-1) != 1 for t in (query, key, value)):
            return None
    output: Tensor = planned.by_rows(operands, launch.NO_ROWS, known)[0]
    return output
