"""What is drawn stays within its figure."""

from __future__ import annotations

import pytest

from experiments._lib import draw

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("panels", [1, 2])
def test_a_key_is_no_wider_than_its_figure(panels: int) -> None:
    figure, axes = draw.panels(panels, columns=2, titles=["one"] * panels)
    for at, name in enumerate(["none", "truncate", "pmax-model", "log", "entropy-model"]):
        draw.curve(axes[0], [512, 1024], [0.5, 0.4], [0.4, 0.3], [0.6, 0.5], label=name, at=at)
    draw.key(figure, axes[0])
    (key,) = figure.legends
    assert key.get_window_extent().width <= figure.bbox.width
    assert len(key.get_texts()) == 5
