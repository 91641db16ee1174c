"""Whether black or white text can be read on a cell of a heat map.

contrast = (L_brighter + 0.05) / (L_darker + 0.05)                                  WCAG 2, at least 4.5 for small text

L is the relative luminance. The brighter the cell the less white stands out and the more black; where they are equal both have
a contrast of 4.58, so that the better of the two is always enough. A cell's colour is mixed in Oklab, as the style sheet does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lengthwise.report.charts import TEMPLATE

Colour = NDArray[np.float64]  # linear red, green and blue, 0 to 1
BLACK, WHITE = np.zeros(3), np.ones(3)
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
# Ottosson 2020: linear sRGB to the cones, whose cube roots Oklab is linear in
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
FROM_CONES = np.linalg.inv(TO_CONES)


@dataclass(frozen=True)
class Ramp:
    """The colours of the scores 0 and 1."""

    low: Colour
    high: Colour

    def at(self, score: float) -> Colour:
        """The colour of a score."""
        low, high = np.cbrt(TO_CONES @ self.low), np.cbrt(TO_CONES @ self.high)
        return FROM_CONES @ (low + score * (high - low)) ** 3

    def takes_white(self, score: float) -> bool:
        """Whether white stands out better than black on the cell of a score."""
        cell = self.at(score)
        return contrast(cell, WHITE) > contrast(cell, BLACK)


@cache
def ramps() -> tuple[Ramp, Ramp]:
    """The ramps of a light and of a dark screen, as the style sheet has them."""
    style = (TEMPLATE / "page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r"--score-low: (#\w{6}); --score-high: (#\w{6});", style)
    return Ramp(*map(linear, light)), Ramp(*map(linear, dark))


def linear(colour: str) -> Colour:
    """Linear red, green and blue of #rrggbb."""
    channels = np.array(list(bytes.fromhex(colour[1:]))) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(colour: Colour, other: Colour) -> float:
    """The contrast of two colours, 1 to 21."""
    darker, brighter = sorted(float(LUMINANCE @ rgb) for rgb in (colour, other))
    return (brighter + 0.05) / (darker + 0.05)
