"""A claim's verdict follows from the result file alone, and every verdict can come out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from experiments._lib.keys import look_up
from experiments.scorecard import page
from experiments.scorecard.verdict import Figure, figure, less, noisy, over, verdict, widened

MODELS = {"theirs": {"trained": "by others"}, "ours": {"trained": "by us"}}
ABOUT = {"item": "Table 1", "says": "it rises", "paper": "+1"}


def judge(tmp_path: Path, content: Any, **claim: Any) -> list[page.Row]:
    file = tmp_path / "experiments" / "x" / "results" / f"{abs(hash(json.dumps(content)))}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    line = {"model": "ours", "at": "4,096", "file": str(file.relative_to(tmp_path)), "key": "gain"}
    return list(page.judged([{**ABOUT, **claim, "asked": [line]}], MODELS, tmp_path))


@pytest.mark.parametrize(
    ("low", "high", "own", "said"),
    [
        (0.1, 0.3, False, "reduced"),
        (0.1, 0.3, True, "reproduced"),
        (-0.1, 0.3, True, "undecided"),
        (-0.3, -0.1, False, "refuted"),
        (-0.3, 0.0, True, "undecided"),
        (0.0, 0.0, True, "refuted"),
    ],
)
def test_the_verdict_follows_the_file(tmp_path: Path, low: float, high: float, own: bool, said: str) -> None:
    (row,) = judge(tmp_path, {"gain": {"mean": (low + high) / 2, "low": low, "high": high}}, above=0, own=own)
    assert row.verdict == said
    assert row.page == "experiments/x/README.md"


@pytest.mark.parametrize(("better", "said"), [(5, "undecided"), (6, "reduced")])
@pytest.mark.parametrize("step", [1.0, 0.5])
def test_five_samples_that_differ_decide_nothing(tmp_path: Path, step: float, better: int, said: str) -> None:
    """Right or wrong, or the mean of two lengths."""
    (row,) = judge(tmp_path, {"gain": [step] * better + [0.0] * (100 - better)}, above=0)
    assert row.verdict == said


def test_the_ratio_of_two_lists_is_that_of_their_logarithms() -> None:
    found = over([2.0, 8.0, 4.0], [1.0, 1.0, 1.0])
    half = 4.302653 * math.log(2) / math.sqrt(3)  # Student's, two degrees of freedom; the logarithms' deviation is log 2
    assert (found.value, found.low, found.high) == pytest.approx((4, 4 * math.exp(-half), 4 * math.exp(half)), rel=1e-6)
    with pytest.raises(ValueError, match="the same samples"):
        over([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("late", "said"), [([0.2, 0.21, 0.19], "reduced"), ([0.4, 0.41, 0.39], "refuted"), ([0.2, 0.4, 0.3], "undecided")]
)
def test_texts_of_two_lengths_decide_by_their_pairs(tmp_path: Path, late: list[float], said: str) -> None:
    (row,) = judge(tmp_path, {"gain": late, "before": [0.3, 0.31, 0.3]}, over="before", below=1, unit="times")
    assert (row.verdict, row.interval) == (said, True)


def test_one_figure_of_many_is_widened_for_all_of_them() -> None:
    one, of_two = (widened(Figure(0.3, 0.1, 0.6), n) for n in (1, 2))
    assert (one.low, one.high) == pytest.approx((0.1, 0.6))
    further = 2.241402728 / 1.959963985  # the normal distribution's 98.75 and 97.5 % points
    assert (of_two.low, of_two.high) == pytest.approx((0.3 - 0.2 * further, 0.3 + 0.3 * further))


def test_a_claim_that_one_figure_of_many_decides_falls_when_they_are_corrected(tmp_path: Path) -> None:
    for name, low in ("near", 0.01), ("open", -0.4):
        (tmp_path / name).write_text(json.dumps({"gain": {"mean": 0.2, "low": low, "high": 0.39}}))
    lines = [{"model": "theirs", "at": "", "file": name, "key": "gain"} for name in ("near", "open")]
    alone, both = (list(page.judged([{**ABOUT, "above": 0, "asked": some}], MODELS, tmp_path)) for some in (lines[:1], lines))
    assert [(row.verdict, row.corrected) for row in alone] == [("reduced", "reduced")]
    assert [(row.verdict, row.corrected) for row in both] == [("reduced", "undecided"), ("undecided", "undecided")]
    assert "1 are undecided (Table 1, it rises: holds, then undecided)" in page._corrected(both, MODELS)


def test_a_claim_between_two_bounds_is_refuted_on_either_side() -> None:
    inside, across, outside = (Figure(x, x - 0.02, x + 0.02) for x in (1.0, 1.04, 1.2))
    assert [verdict(x, above=0.95, below=1.05) for x in (inside, across, outside)] == ["reduced", "undecided", "refuted"]


def test_a_claim_that_could_not_fail_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no verdict could fail"):
        judge(tmp_path, {"gain": 1.0})


def test_a_claim_nobody_asked_says_why() -> None:
    (row,) = page.judged([{**ABOUT, "why": "no data"}], MODELS)
    assert (row.verdict, row.measured, row.model) == ("not attempted", "no data", "")


def test_models_of_others_stand_first_and_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '{"up": {"value": 1, "low": 0.5, "high": 2}, "down": {"value": -1, "low": -2, "high": -0.5}}'
    )
    lines = [{"model": m, "at": "", "file": "a.json", "key": k, "page": "p"} for m, k in (("ours", "up"), ("theirs", "down"))]
    rows = list(page.judged([{**ABOUT, "above": 0, "asked": lines}], MODELS, tmp_path))
    assert [(row.model, row.verdict) for row in rows] == [("theirs", "refuted"), ("ours", "reduced")]
    assert list(page.by_training(rows[::-1], MODELS).items()) == [("by others", {"refuted": 1}), ("by us", {"reduced": 1})]


def test_a_claim_is_counted_once_however_many_figures_it_has(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"up": 1, "down": -1, "open": {"value": 0, "low": -1, "high": 1}}))
    lines = [{"model": "ours", "at": "", "file": "a.json", "key": key, "page": "p"} for key in ("up", "open", "up", "down")]

    def rows(*asked: dict[str, str]) -> list[page.Row]:
        return list(page.judged([{**ABOUT, "above": 0, "asked": list(asked)}], MODELS, tmp_path))

    found = [
        [page.together(one) for one in page.by_claim(rows(*some)).values()] for some in (lines[:3], lines[1::2], lines[1:2])
    ]
    assert found == [["holds"], ["refuted"], ["undecided"]]
    assert page._by_model(rows(*lines), MODELS).endswith("| Table 1 | it rises | holds 2, refuted 1 |")


def test_figures_come_with_intervals_where_there_are_some() -> None:
    assert not figure(2.0).has_interval
    assert over(1.0, 4.0) == Figure(0.25, 0.25, 0.25)
    # Student's t of three differences 1, 2, 3: 2 -+ 4.3027 / sqrt 3
    paired = less([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (paired.low, paired.high) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-3)
    assert less([[1, 3], [4, 4]], [[0, 2], [2, 2]]).value == 1.5
    # Newcombe's method 10 for 56 of 70 and 48 of 80 (Newcombe 1998, Table II): 0.0524 to 0.3339
    one = {"mean": 56 / 70, "low": 0.6918, "high": 0.8770}
    other = {"mean": 48 / 80, "low": 0.4905, "high": 0.7003}
    apart = less(one, other)
    assert (apart.value, apart.low, apart.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=2e-4)
    wide = noisy(Figure(0.95, 0.95, 0.95), 0.1)
    assert (wide.low, wide.high) == pytest.approx((0.95 * 0.758, 0.95 * 1.319), rel=1e-3)
    with pytest.raises(ValueError, match="3 samples against 2"):
        less([1, 2, 3], [1, 2])


def test_keys_choose_one_entry_or_all() -> None:
    document = {"a": [{"m": "x", "row": {"cos": None}, "v": [1, 2]}, {"m": "x", "row": {"cos": 8.0}, "v": [3, 4]}], "l/2": [5]}
    assert look_up(document, "a[row.cos=8.0]/v/1") == 4
    assert look_up(document, "a{m=x}/v/0") == [1, 3]
    assert look_up(document, "a[m=x&row.cos=None]")["v"] == [1, 2]
    with pytest.raises(KeyError, match="2 entries fit"):
        look_up(document, "a[m=x]/v")
    with pytest.raises(KeyError, match="no entry fits"):
        look_up(document, "a{m=y}/v")


def test_every_claim_names_a_known_model_and_a_page_that_exists() -> None:
    rows = [row for name in page.PAPERS for row in page.judged(page._toml(name)["claim"], page._toml("models"))]
    assert {row.verdict for row in rows} == set(page.VERDICTS)
    assert all((page.ROOT / row.page).exists() for row in rows if row.page)
