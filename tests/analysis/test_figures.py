"""The figures of an analysis: what stands where, and that a file of one needs nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from lengthwise.analysis.figures import (
    bias_figures,
    figures,
    heads_figure,
    qq_figure,
    sharpness_figure,
    signed_log2,
    standardised,
    temperatures_figure,
)
from lengthwise.analysis.records import Analysis
from lengthwise.report.charts import MARGIN, Figure, svg
from tests.helpers.analysed import HEADS, LAYERS, LENGTHS, analysis, at, sighted, taus

NAMES = ["sharpness", "heads", "qq", "temperatures", "bias"]


def unfinished() -> Analysis:
    """Before the training length was measured."""
    return analysis(lengths=(at(256),), temperatures=(), heads=(), sights=())


def only_trained() -> Analysis:
    return analysis(lengths=(at(512),), temperatures=(taus(512, proposition_1=1.0, proposition_2=1.0, pmax=1.0, entropy=1.0),))


def test_every_part_of_an_analysis_has_its_figure() -> None:
    assert [figure.name for figure in figures(analysis())] == NAMES
    assert [figure.name for figure in figures(unfinished())] == NAMES[:3]
    assert [figure.name for figure in figures(analysis(sights=()))] == NAMES[:4]


@pytest.mark.parametrize("of", [analysis(), unfinished(), only_trained()], ids=["whole", "unfinished", "only trained"])
def test_a_file_is_well_formed_and_asks_for_nothing(of: Analysis) -> None:
    for figure in figures(of):
        text = svg(figure)
        root = ElementTree.fromstring(text)
        assert (root.get("width"), root.get("height")) == (str(figure.width), str(figure.height))
        assert len(root.findall(".//{*}svg[@class]")) >= len(figure.panels)
        assert not re.search(r"\bnan\b|\binf\b|url\(|@import|href|<script", text)


def edges(figure: Figure) -> list[tuple[float, float, float, float]]:
    return [(x, y, x + panel.box.width, y + panel.box.height) for x, y, panel in figure.places]


@pytest.mark.parametrize("figure", figures(analysis()), ids=NAMES)
def test_panels_and_keys_stand_beside_each_other_inside_the_figure(figure: Figure) -> None:
    placed = edges(figure)
    for left, top, right, bottom in placed:
        assert MARGIN <= left < right <= figure.width - MARGIN
        assert MARGIN < top < bottom <= figure.height - MARGIN
    for k, one in enumerate(placed):
        for other in placed[k + 1 :]:
            assert one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]
    for x, y, style in figure.key_places:
        assert max(bottom for *_, bottom in placed) < y < figure.height
        assert x + 35 + 6.6 * len(style.name) < figure.width


def test_a_point_of_sharpness_is_the_mean_of_a_layers_heads() -> None:
    of = analysis(lengths=(at(512, p_max=[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]), at(1024, p_max=[[0.1] * 3, [0.2] * 3])))
    p_max, entropy, l_max = sharpness_figure(of).panels
    assert [[point.text for point in curve.points] for curve in p_max.curves] == [["0.2", "0.1"], ["0.5", "0.2"]]
    assert [len(panel.curves) for panel in (entropy, l_max)] == [LAYERS, LAYERS]
    assert p_max.train_x == p_max.x.at(512)


def test_the_heads_that_disperse_most_stand_out() -> None:
    of = analysis(heads=analysis().heads[:2])
    out = {(one.layer, one.head) for one in of.heads}
    for layer, panel in enumerate(heads_figure(of).panels, 1):
        assert len(panel.curves) == HEADS
        marked = {curve.end_label for curve in panel.curves if curve.style and curve.style.colour == "c1"}
        assert marked == {str(head) for at_layer, head in out if at_layer == layer}


def test_a_gaussian_vector_lies_on_the_line_of_its_plot() -> None:
    for one, panel in zip(analysis().lengths, qq_figure(analysis()).panels, strict=True):
        mean = panel.curves[-1]
        assert mean.label == "mean of all heads"
        for point in mean.points:
            quantile = float(point.column_label.split()[1].rstrip(","))
            assert point.x == pytest.approx(panel.x.at(quantile), abs=0.5)
            assert point.y == pytest.approx(panel.y.at(quantile), abs=0.5)
        assert panel.title == f"{one.length:,} tokens: r = 0.9900"
        assert len(panel.curves) == HEADS + 2
    assert standardised([1.0, 3.0], 2.0, 0.5) == [-2.0, 2.0]
    assert standardised([1.0, 1.0], 1.0, 0.0) == [0.0, 0.0]


def test_what_is_derived_is_a_curve_and_what_was_measured_a_mark() -> None:
    (chart,) = temperatures_figure(analysis()).panels
    first, second, pmax, entropy, law = chart.curves
    assert [bool(curve.line) for curve in chart.curves] == [True, True, False, False, True]
    assert [len(curve.points) for curve in chart.curves] == [len(LENGTHS)] * 5
    assert pmax.points[1].text == "tau = 0.880"
    assert law.points[1].text == "tau = 0.900"
    assert (first.style and first.style.colour) == (pmax.style and pmax.style.colour)
    assert (second.style and second.style.colour) == (entropy.style and entropy.style.colour)


def test_an_estimate_without_a_temperature_is_left_out() -> None:
    of = analysis(temperatures=tuple(taus(n, proposition_1=None, pmax=None if n > 1024 else 0.9) for n in LENGTHS))
    (chart,) = temperatures_figure(of).panels
    assert [curve.label for curve in chart.curves] == [
        "Proposition 2 (entropy)",
        "Algorithm 1 (P_max)",
        "Algorithm 1 (entropy)",
        "log law",
    ]
    assert len(chart.curves[1].points) == 2


def test_bias_is_drawn_from_near_sighted_to_far_sighted() -> None:
    (figure,) = bias_figures(analysis())
    assert [panel.title for panel in figure.panels] == ["head 2 (4 tokens)", "head 3 (20 tokens)", "head 1 (90 tokens)"]
    says = {point.column_label: point.text for point in figure.panels[0].curves[0].points}
    assert (says["the row itself"], says["-8 tokens"], says["+16 tokens"]) == ("0.000", "-0.200", "-0.400")


def test_layers_with_a_bias_of_their_own_have_a_figure_each() -> None:
    own = analysis(sights=(sighted(1, 2.0), sighted(1, 3.0, layer=2), sighted(2, 5.0)))
    assert [(figure.name, len(figure.panels)) for figure in bias_figures(own)] == [("bias_layer_1", 2), ("bias_layer_2", 1)]
    assert bias_figures(analysis(sights=())) == []


def test_distances_are_placed_by_their_logarithm_on_both_sides() -> None:
    assert [signed_log2(d) for d in (-7, -1, 0, 1, 3)] == [-3, -1, 0, 1, 2]
