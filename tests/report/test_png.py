"""PNG files of the figures."""

from __future__ import annotations

import struct

import pytest

pytest.importorskip("matplotlib")

from lengthwise.analysis.figures import figures
from lengthwise.report.png import SHARPER, png
from tests.helpers.analysed import analysis


def test_a_picture_has_the_shape_of_its_figure_and_is_the_same_twice() -> None:
    for figure in figures(analysis()):
        picture = png(figure)
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", picture[16:24])
        assert (width, height) == pytest.approx((figure.width * SHARPER, figure.height * SHARPER), abs=2)
    # The last one stands for all
    assert png(figure) == picture


def test_curves_are_drawn_in_their_colours() -> None:
    from io import BytesIO

    from matplotlib.image import imread

    temperatures = next(figure for figure in figures(analysis()) if figure.name == "temperatures")
    pixels = imread(BytesIO(png(temperatures)))[..., :3].reshape(-1, 3)
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
        distance = abs(pixels - [value / 255 for value in colour]).max(-1)
        assert (distance < 0.02).sum() > 200
