"""Choose an implementation of the equation. One that is named runs or raises; only `auto` chooses."""

from __future__ import annotations

from torch import Tensor

from lengthwise.attention import cpu
from lengthwise.attention.equation import Equation
from lengthwise.attention.reference import reference
from lengthwise.attention.statistics import RowStatistics
from lengthwise.errors import BadInput

IMPLEMENTATIONS = ("auto", "reference", "fused", "blockwise")

scan = cpu.scan


def attention(
    equation: Equation, *, statistics: bool = False, implementation: str = "auto"
) -> tuple[Tensor, RowStatistics | None]:
    """Output [batch, heads, queries, value_size] and, when asked for, the statistics of every row."""
    if implementation not in IMPLEMENTATIONS:
        raise BadInput(f"no attention implementation {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    if implementation == "reference":
        output, rows = reference(equation)
        return output, rows if statistics else None
    if implementation == "blockwise":
        return cpu.blockwise(equation, statistics)
    refusal = "it returns no statistics" if statistics else cpu.why_not_fused(equation)
    if refusal is None:
        return cpu.fused(equation), None
    if implementation == "fused":
        raise BadInput(f"attention implementation 'fused' cannot run here: {refusal}; use 'blockwise' or 'auto'")
    return cpu.blockwise(equation, statistics)
