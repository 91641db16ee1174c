"""analysis.json: what is written is read back, what is damaged is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis.records import ANALYSIS, Analysis, read_analysis
from lengthwise.errors import BadInput
from tests.helpers.analysed import analysis, at, sighted, taus


def written(folder: Path, of: Analysis, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ANALYSIS).write_text(json.dumps({**of.to_json(), **changes}))
    return folder


def test_an_analysis_comes_back_as_it_went(tmp_path: Path) -> None:
    assert read_analysis(written(tmp_path, analysis())) == analysis()


def test_the_training_length_is_known_once_it_was_measured() -> None:
    trained = analysis().trained
    assert trained is not None
    assert trained.length == 512
    assert analysis(lengths=(at(1024),)).trained is None


def test_means_are_over_layers_and_heads() -> None:
    assert at(512, p_max=[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]).mean("p_max") == pytest.approx(0.35)


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "another format": ({"format": "lengthwise.run/1"}, "its format is 'lengthwise.run/1'"),
    "no model": ({"model": None}, "does not tell of which model"),
    "no training length": ({"settings": {}}, "its 'settings' is {}, not settings with a train_length above 1"),
    "a training length that is none": (
        {"settings": {"train_length": 0}},
        "its 'settings' is {\"train_length\": 0}, not settings with a train_length above 1",
    ),
    "no lengths": ({"lengths": None}, "its 'lengths' is null, not a list"),
    "a length with a field too few": ({"lengths": [{"length": 512}]}, "entry 1 of its 'lengths' has no 'sequences'"),
    "text for numbers": (
        {"lengths": [at(512).__dict__, {**at(1024).__dict__, "p_max": "x"}]},
        "the 'p_max' in entry 2 of its 'lengths' is \"x\"",
    ),
    "a number for a reason": (
        {"temperatures": [{**taus(512).__dict__, "why": {"pmax": 5}}]},
        "the 'pmax' in the 'why' in entry 1 of its 'temperatures' is 5",
    ),
    "text for a layer": (
        {"sights": [{**sighted(1, 4.0).__dict__, "layer": "1"}]},
        "the 'layer' in entry 1 of its 'sights' is \"1\"",
    ),
    "a word for a training length": ({"settings": {"train_length": [2]}}, "not settings with a train_length above 1"),
    "no layers": (
        {"lengths": [{**at(512).__dict__, "p_max": []}]},
        "the 'p_max' in entry 1 of its 'lengths' is [], not a list of 1 or more",
    ),
    "no heads": ({"heads": []}, "its 'heads' or 'temperatures' are gone"),
    "no temperatures": ({"temperatures": []}, "its 'heads' or 'temperatures' are gone"),
    "nothing yet": ({"lengths": []}, "holds no finished length yet"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_analysis_is_refused(case: str, tmp_path: Path) -> None:
    changes, message = DAMAGED[case]
    with pytest.raises(BadInput) as refusal:
        read_analysis(written(tmp_path, analysis(), **changes))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ANALYSIS).write_text(json.dumps(analysis().to_json())[:500])
    with pytest.raises(BadInput, match="is not an analysis"):
        read_analysis(tmp_path)
