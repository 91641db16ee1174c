"""Figures without a screen: matplotlib's, saved as whole files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput

DOTS = 110  # per inch


def blank(width: float, height: float) -> Any:
    """A figure of so many inches that arranges what is put on it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput("drawing needs matplotlib: pip install 'lengthwise[experiments]'") from None
    return Figure((width, height), layout="constrained")


def save(figure: Any, file: Path) -> None:
    """By its ending, .png or .svg."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file.suffix.removeprefix("."), dpi=DOTS)
    write_whole(file, _smaller(drawn) if file.suffix == ".png" else drawn.getvalue())


def _smaller(drawn: io.BytesIO) -> bytes:
    """The same picture by a palette, where only greys of its letters must be left out: a byte a dot instead of four."""
    from PIL import Image

    whole = Image.open(drawn).convert("RGB")
    if whole.getcolors(512) is None:
        return drawn.getvalue()
    small = io.BytesIO()
    whole.quantize(256, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    return small.getvalue()
