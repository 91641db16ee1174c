"""OutRep: train on f(y) instead of y, so that targets of long and short sequences lie in one range; f^-1 at test time.

    sqrt    f(y) = sqrt(y)       f^-1(z) = z^2
    log     f(y) = log(y)        f^-1(z) = e^z
    rsqrt   f(y) = 1 / sqrt(y)   f^-1(z) = 1 / z^2                          Output Alignment, Section 3
    reciprocal, f(y) = 1 / y, is not the paper's

A model may answer any real number, also one that f never takes: a negative square root. f^-1 is the formula above on the whole
line, so that -3 means 9 under `sqrt`; only 0 under `rsqrt` means infinity. Errors are measured in y's own units. `shift` is
added to y before f and taken away after f^-1, for targets that can be 0, as a sum of bits can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.errors import BadInput, require

# f and its inverse
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "identity": (torch.clone, torch.clone),
    "sqrt": (torch.sqrt, torch.square),
    "log": (torch.log, torch.exp),
    "rsqrt": (torch.rsqrt, lambda z: z.square().reciprocal()),
    "reciprocal": (torch.reciprocal, torch.reciprocal),
}


@dataclass(frozen=True)
class OutRep:
    """A target function f and its inverse."""

    function: str = "identity"
    shift: float = 0.0

    def __post_init__(self) -> None:
        require(self.function in FUNCTIONS, f"no OutRep function {self.function!r}; take one of {', '.join(FUNCTIONS)}")
        require(0 <= self.shift < float("inf"), f"shift must be 0 or above, not {self.shift}")

    def aligned(self, y: Tensor) -> Tensor:
        """f(y), what the model is trained on."""
        aligned = FUNCTIONS[self.function][0](y + self.shift)
        if not bool(torch.isfinite(aligned).all()):
            worst = float(y[~torch.isfinite(aligned)].flatten()[0])
            raise BadInput(f"{self.function} has no value at {worst + self.shift:g}, the target {worst:g}; give a shift")
        return aligned

    def original(self, z: Tensor) -> Tensor:
        """f^-1(z), the model's answer in y's units."""
        return FUNCTIONS[self.function][1](z) - self.shift

    def squared_error(self, z: Tensor, y: Tensor) -> Tensor:
        """(f^-1(z) - y)^2, of every answer z."""
        return (self.original(z) - y).square()
