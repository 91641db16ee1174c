"""Whether black or white text can be read on a cell of a heat map.

contrast = (L_brighter + 0.05) / (L_darker + 0.05)                                  WCAG 2, at least 4.5 for small text

L is the relative luminance. The brighter the cell the less white stands out and the more black; where they are equal both have
a contrast of 4.58, so that the better of the two is always enough. A cell's colour is mixed in Oklab, as the style sheet does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from lengthwise.report.charts import TEMPLATE

Colour = tuple[float, float, float]  # linear red, green and blue, 0 to 1
BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
LUMINANCE = (0.2126, 0.7152, 0.0722)
# Ottosson 2020: linear sRGB to the cones, the cube roots of those to Oklab; and back
TO_CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
FROM_CONES = (
    (4.0767416621, -3.3077115913, 0.2309699292),
    (-1.2684380046, 2.6097574011, -0.3413193965),
    (-0.0041960863, -0.7034186147, 1.7076147010),
)


@dataclass(frozen=True)
class Ramp:
    """The colours of the scores 0 and 1."""

    low: Colour
    high: Colour

    def at(self, score: float) -> Colour:
        """The colour of a score. Oklab is linear in the cube roots of the cones, so these can be mixed in its place."""
        ends = zip(_roots(self.low), _roots(self.high), strict=True)
        red, green, blue = _times(FROM_CONES, tuple((low + score * (high - low)) ** 3 for low, high in ends))
        return red, green, blue

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
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return red, green, blue


def contrast(colour: Colour, other: Colour) -> float:
    """The contrast of two colours, 1 to 21."""
    darker, brighter = sorted(sum(w * part for w, part in zip(LUMINANCE, rgb, strict=True)) for rgb in (colour, other))
    return (brighter + 0.05) / (darker + 0.05)


def _linear(part: float) -> float:
    """The linear light of one channel of sRGB."""
    return float(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)


def _roots(colour: Colour) -> tuple[float, ...]:
    return tuple(cone ** (1 / 3) for cone in _times(TO_CONES, colour))


def _times(matrix: tuple[Colour, ...], vector: tuple[float, ...]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]
