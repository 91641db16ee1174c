"""Choose an implementation of the equation. One that is named runs or raises; only `auto` chooses."""

from __future__ import annotations

from functools import reduce

from torch import Tensor

from lengthwise.attention import cpu
from lengthwise.attention.equation import Equation
from lengthwise.attention.reference import reference
from lengthwise.attention.statistics import RowStatistics, merge, merged
from lengthwise.errors import BadInput

IMPLEMENTATIONS = ("auto", "reference", "fused", "blockwise")

# Logits that fit anywhere, as those of one query and a window of keys do: going over blocks would cost more than it saves
SMALL = 2**17


def attention(
    equation: Equation, *, statistics: bool = False, implementation: str = "auto"
) -> tuple[Tensor, RowStatistics | None]:
    """Output [batch, heads, queries, value_size] and, when asked for, the statistics of every row."""
    if implementation not in IMPLEMENTATIONS:
        raise BadInput(f"no attention implementation {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    if equation.more:
        solved = [attention(part, statistics=True, implementation=implementation) for part in equation.parts]
        output, rows = merged([(output, rows) for output, rows in solved if rows is not None])
        return output, rows if statistics else None
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
    if equation.query[..., 0].numel() * equation.visible.keys <= SMALL:
        output, rows = reference(equation)
        return output, rows if statistics else None
    return cpu.blockwise(equation, statistics)


def scan(equation: Equation, inverse_temperatures: Tensor) -> RowStatistics:  # fields [temperatures, batch, heads, queries]
    """Statistics at several temperatures in one pass over the logits; see `cpu.scan`."""
    return reduce(merge, [cpu.scan(part, inverse_temperatures) for part in equation.parts])
