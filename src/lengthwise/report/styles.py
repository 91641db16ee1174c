"""What a method looks like, the same in every figure of a page: a colour, a marker and a short name.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; the marker says the same a second time. The colours
themselves stand in the style sheet, once for a light and once for a dark screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lengthwise.methods.spec import short_name

COLOURS = 6  # classes c0 to c5 of the style sheet
# The same on white paper, for figures in files of their own
PAPER_COLOURS = {
    "none": "#7d848c",
    "law": "#5d656e",
    "c0": "#0072b2",
    "c1": "#d55e00",
    "c2": "#009e73",
    "c3": "#b8569a",
    "c4": "#c58a00",
    "c5": "#3fa0dd",
}
PAPER_GREYS = {"ink": "#1d2126", "soft": "#5d656e", "faint": "#e4e4de", "line": "#c9cac4", "paper": "#ffffff"}
CIRCLE = "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z"
SQUARE = "M-3.5,-3.5h7v7h-7Z"
DIAMOND = "M0,-5L5,0L0,5L-5,0Z"
UP = "M0,-4.8L4.8,3.6L-4.8,3.6Z"
DOWN = "M0,4.8L4.8,-3.6L-4.8,-3.6Z"
CROSS = "M-4.5,-1.5h3v-3h3v3h3v3h-3v3h-3v-3h-3Z"
MARKERS = (DIAMOND, UP, SQUARE, CIRCLE, DOWN, CROSS)


@dataclass(frozen=True)
class Style:
    name: str  # short, unique on the page
    colour: str  # class of the style sheet
    marker: str  # SVG path data around 0,0
    dashed: bool = False  # the second time round the colours
    lined: bool = True  # False: marks alone


def method_styles(specs: Sequence[str]) -> dict[str, Style]:
    """One style a method; `none` is grey and `truncate` muted, so that the methods under test stand out."""
    # An alignment file goes by its name without folders, unless two would then be called the same
    short = [short_name(spec) for spec in specs]
    names = {spec: name if short.count(name) == 1 else spec for spec, name in zip(specs, short, strict=True)}
    styles: dict[str, Style] = {}
    for spec in specs:
        if spec in ("none", "truncate"):
            styles[spec] = Style(spec, spec, CIRCLE if spec == "none" else SQUARE)
            continue
        k = sum(1 for style in styles.values() if style.colour not in ("none", "truncate"))
        marker = MARKERS[(k + k // COLOURS) % len(MARKERS)]
        styles[spec] = Style(names[spec], f"c{k % COLOURS}", marker, dashed=k >= COLOURS)
    return styles
