"""The one equation on tensors; nothing here knows Hugging Face.

`reference` is the law, `blocks` serves every equation in O(L) memory, `dense` takes gradients of short inputs on a CPU, `fused`
hands PyTorch's SDPA what it can, `triton` has kernels for NVIDIA GPUs; `dispatch` chooses.
"""

from lengthwise.attention.bias import DistanceBias
from lengthwise.attention.dispatch import IMPLEMENTATIONS, attention, scan
from lengthwise.attention.equation import Equation, Rest
from lengthwise.attention.parts import Part, as_one, as_they_stand
from lengthwise.attention.reference import reference
from lengthwise.attention.statistics import RowStatistics, merge
from lengthwise.attention.visible import Visible

__all__ = [
    "IMPLEMENTATIONS",
    "DistanceBias",
    "Equation",
    "Part",
    "Rest",
    "RowStatistics",
    "Visible",
    "as_one",
    "as_they_stand",
    "attention",
    "merge",
    "reference",
    "scan",
]
