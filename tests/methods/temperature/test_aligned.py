"""The calibrated table: between its lengths, beyond them, and on disk."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.temperature.aligned import Alignment, Calibrated, Table


def make(*temperatures: tuple[int, Table], scope: str = "model", train_length: int = 64) -> Alignment:
    entries = tuple(Calibrated(length, tau, statistic=0.1, forwards=3) for length, tau in temperatures)
    return Alignment("pmax", scope, train_length, target=0.1, temperatures=entries, model={"family": "t5"})


def document(**changes: Any) -> dict[str, Any]:
    return {**make((128, 0.8), (256, 0.5)).to_json(), **changes}


def test_rows_up_to_the_training_length_keep_exactly_one() -> None:
    assert make((65, 0.5)).inverse_temperature(torch.arange(65)).eq(1).all()


def test_calibrated_lengths_have_exactly_their_value() -> None:
    alignment = make((100, 0.9), (333, 0.7), (5000, 0.3))
    g = alignment.inverse_temperature(torch.tensor([[[100, 333, 5000]]]))
    assert torch.equal(g, 1 / torch.tensor([[[0.9, 0.7, 0.3]]], dtype=torch.float64).float())


def test_between_two_lengths_g_is_linear_in_ln_n() -> None:
    # 1 at 64, 1.25 at 256, 2 at 4096; halfway in ln n stand 128 and 1024
    g = make((256, 0.8), (4096, 0.5)).inverse_temperature(torch.tensor([128, 1024, 512]))
    assert g.tolist() == pytest.approx([1.125, 1.625, 1.4375])


def test_a_log_law_is_represented_without_error() -> None:
    law = [1 + 0.3 * math.log(n / 64) for n in range(64, 2049)]
    taus = ((length, 1 / law[length - 64]) for length in (100, 700, 2048))
    g = make(*taus).inverse_temperature(torch.arange(64, 2049))
    assert g.tolist() == pytest.approx(law, rel=1e-6)


def test_tau_reads_the_table_at_one_length() -> None:
    assert float(make((256, 0.8)).tau(256)) == pytest.approx(0.8)
    assert float(make((256, 0.8)).tau(128)) == pytest.approx(1 / 1.125)
    assert make((256, [0.8, 0.5]), scope="layer").tau(256).tolist() == pytest.approx([0.8, 0.5])
    assert make((256, [[0.8, 0.5]]), scope="head").tau(9).tolist() == [[1.0, 1.0]]


def test_beyond_the_last_length_the_value_is_held_and_said_once() -> None:
    alignment = make((128, 0.8))
    with pytest.warns(UserWarning, match=r"300 tokens is beyond the last calibrated length 128.*--length 300") as said:
        g = alignment.inverse_temperature(torch.tensor([128, 300]))
    assert len(said) == 1
    assert g.tolist() == [1.25, 1.25]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert alignment.inverse_temperature(torch.tensor([4000])).tolist() == [1.25]


def test_up_to_the_last_length_nothing_is_said() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        g = make((128, 0.8)).inverse_temperature(torch.arange(1, 129))
    assert said == []
    assert (float(g[0]), float(g[-1])) == (1.0, 1.25)


def test_one_value_for_the_model_keeps_the_shape_and_serves_every_layer() -> None:
    visible = torch.tensor([[[64, 128, 128]], [[128, 1, 64]]])
    for layer in (0, 5):
        g = make((128, 0.5)).inverse_temperature(visible, layer)
        assert g.tolist() == [[[1.0, 2.0, 2.0]], [[2.0, 1.0, 1.0]]]
        assert g.dtype == torch.float32


def test_a_layer_has_its_own_value() -> None:
    alignment = make((128, [0.5, 0.8, 1.0]), scope="layer")
    visible = torch.tensor([[[64, 128]], [[128, 1]]])
    assert alignment.inverse_temperature(visible, 0).tolist() == [[[1.0, 2.0]], [[2.0, 1.0]]]
    assert alignment.inverse_temperature(visible, 1).tolist() == [[[1.0, 1.25]], [[1.25, 1.0]]]
    assert alignment.inverse_temperature(visible, 2).tolist() == [[[1.0, 1.0]], [[1.0, 1.0]]]


def test_a_head_has_its_own_value_and_the_row_stays_last() -> None:
    alignment = make((128, [[0.5, 0.8, 1.0], [0.25, 0.2, 0.1]]), scope="head")
    visible = torch.tensor([[[64, 128]], [[128, 1]]])  # [batch 2, 1, rows 2]
    first = [[1.0, 2.0], [1.0, 1.25], [1.0, 1.0]]
    assert alignment.inverse_temperature(visible, 0).tolist() == [first, [[b, a] for a, b in first]]
    second = alignment.inverse_temperature(visible, 1)
    assert second.shape == (2, 3, 2)
    assert second[0, :, 1].tolist() == pytest.approx([4.0, 5.0, 10.0])


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("heads", [1, 3])
def test_heads_take_the_axis_of_one_whatever_its_neighbours(rows: int, heads: int) -> None:
    alignment = make((128, [[0.5] * heads] * 2), scope="head")
    assert alignment.inverse_temperature(torch.full((2, 1, rows), 128), 1).shape == (2, heads, rows)
    assert alignment.inverse_temperature(torch.full((1, 1, rows), 128), 1).shape == (1, heads, rows)


@pytest.mark.parametrize(
    ("scope", "tau"), [("model", 0.7), ("layer", [0.7, 1 / 3]), ("head", [[0.7, 1 / 3], [0.1, 2.0], [1.0, 0.9]])]
)
def test_a_saved_alignment_loads_as_it_was(tmp_path: Path, scope: str, tau: Table) -> None:
    alignment = Alignment(
        "entropy", scope, 64, tau, (Calibrated(128, tau, tau, 4), Calibrated(256, tau, tau, 5)), {"family": "t5"}, {"seed": 1}
    )
    path = tmp_path / "new folder" / "tau.json"
    alignment.save(path)
    assert Alignment.load(path) == alignment
    assert json.loads(path.read_text())["format"] == "lengthwise.alignment/1"


def test_a_save_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "tau.json"
    make((128, 0.8)).save(path)
    make((128, 0.6)).save(str(path))
    assert [file.name for file in tmp_path.iterdir()] == ["tau.json"]
    assert Alignment.load(path) == make((128, 0.6))


def test_a_save_that_breaks_off_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tau.json"
    make((128, 0.8)).save(path)
    break_off_writes(monkeypatch)
    with pytest.raises(BadInput, match="No space left"):
        make((128, 0.6)).save(path)
    assert Alignment.load(path) == make((128, 0.8))


def test_a_save_that_breaks_off_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_off_writes(monkeypatch)
    with pytest.raises(BadInput, match="No space left"):
        make((128, 0.6)).save(tmp_path / "tau.json")
    assert [*tmp_path.iterdir()] == []


def break_off_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)


def test_a_missing_file_is_named_with_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no alignment file .*gone\.json; make one with `lengthwise calibrate`"):
        Alignment.load(tmp_path / "gone.json")


@pytest.mark.parametrize("content", [b"", b"tau = 0.5", b'{"format": "lengthwise.alig', b"\xff\xfe\x00"])
def test_a_file_that_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tau.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"tau\.json is not an alignment file"):
        Alignment.load(path)


@pytest.mark.parametrize("content", [{}, [], 7, {"format": "lengthwise.alignment/2"}])
def test_another_format_is_refused(tmp_path: Path, content: object) -> None:
    path = tmp_path / "tau.json"
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput, match=r"not 'lengthwise\.alignment/1'"):
        Alignment.load(path)


ENTRY = {"length": 128, "tau": 0.8, "statistic": 0.1, "forwards": 3}


NUMBERS = "a number from 0 on, or lists of such numbers"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"temperatures": None}, "its 'temperatures' is null, not a list"),
        ({"temperatures": [7]}, "entry 1 of its 'temperatures' is 7, not an object"),
        ({"temperatures": [{"length": 128}]}, "entry 1 of its 'temperatures' has no 'tau'"),
        ({"temperatures": [ENTRY, {**ENTRY, "colour": "red"}]}, "entry 2 of its 'temperatures' has an unknown key 'colour'"),
        (
            {"temperatures": [{**ENTRY, "tau": None}]},
            "the 'tau' in entry 1 of its 'temperatures' is null, not a number, or lists",
        ),
        ({"temperatures": [{**ENTRY, "tau": "0.8"}]}, "the 'tau' in entry 1 of .* is \"0.8\", not a number, or lists"),
        (
            {"temperatures": [{**ENTRY, "tau": [[1, 2], [3]]}]},
            "the tau at length 128 is .* lists of numbers of one length",
        ),
        ({"temperatures": [{**ENTRY, "length": "128"}]}, "the 'length' in entry 1 of .* is \"128\", not a whole number"),
        ({"temperatures": [{**ENTRY, "length": 128.5}]}, r"the 'length' in entry 1 of .* is 128\.5, not a whole number"),
        ({"temperatures": [{**ENTRY, "statistic": "high"}]}, f"the 'statistic' in entry 1 of .* is \"high\", not {NUMBERS}"),
        ({"temperatures": [{**ENTRY, "target": -0.5}]}, rf"the 'target' in entry 1 of .* is -0\.5, not {NUMBERS}"),
        ({"temperatures": [{**ENTRY, "forwards": "few"}]}, "the 'forwards' in entry 1 of .* is \"few\", not a whole number"),
        ({"train_length": None}, "its 'train_length' is null, not a whole number"),
        ({"train_length": 64.5}, r"its 'train_length' is 64\.5, not a whole number"),
        ({"model": {}}, "the model of an alignment must be its fingerprint"),
        ({"model": "t5"}, "its 'model' is \"t5\", not an object"),
        ({"statistic": "mean"}, "statistic must be one of"),
        ({"scope": "planet"}, "scope must be one of"),
        ({"target": None}, f"its 'target' is null, not {NUMBERS}"),
        ({"target": "high"}, f"its 'target' is \"high\", not {NUMBERS}"),
        ({"target": True}, f"its 'target' is true, not {NUMBERS}"),
        ({"target": -0.1}, rf"its 'target' is -0\.1, not {NUMBERS}"),
        ({"target": [0.1, -5.0]}, rf"its 'target' is \[0\.1, -5\.0\], not {NUMBERS}"),
        ({"target": []}, rf"its 'target' is \[\], not {NUMBERS}"),
        ({"provenance": "yesterday"}, "its 'provenance' is \"yesterday\", not an object"),
        ({"provenance": None}, "its 'provenance' is null, not an object"),
    ],
)
def test_a_damaged_file_is_refused_in_words(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    path = tmp_path / "tau.json"
    path.write_text(json.dumps(document(**changes)))
    with pytest.raises(BadInput, match=rf"tau\.json is damaged: {reason}"):
        Alignment.load(path)


def test_what_no_calibration_writes_is_no_alignment_file(tmp_path: Path) -> None:
    path = tmp_path / "tau.json"
    for text in (json.dumps(document(target=float("nan"))), "[" * 100_000, json.dumps(document(statistic="\ud800"))):
        path.write_text(text)
        with pytest.raises(BadInput, match=r"tau\.json is not an alignment file: it is not JSON: [^\n]{1,80}$"):
            Alignment.load(path)


SEARCHED = {"searched": [{"length": 128, "path": [{"tau": 0.9}, {"tau": 0.8}]}, {"length": 256, "path": []}]}


def edited(path: Path, old: str, new: str, provenance: dict[str, Any] | None = None) -> None:
    """Change a saved alignment as a text editor would."""
    replace(make((128, 0.8), (256, 0.5)), provenance=provenance or SEARCHED).save(path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"tau": 0.8,\n', '"tau": 0.13,\n', ": the tau at length 128 is 0.13, and its search ended at 0.8"),
        ('"tau": 0.5,\n', '"tau": 5.0,\n', ""),
        ('"train_length": 64', '"train_length": 65', ""),
        ('"length": 256', '"length": 255', ""),
        ('"family": "t5"', '"family": "llama"', ""),
        ('"digest": "', '"digest": "0', ""),
    ],
)
def test_a_value_that_was_changed_after_calibration_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "tau.json"
    edited(path, old, new)
    with pytest.raises(BadInput, match=rf"tau\.json was changed after it was calibrated{told}; put the old .* 'digest' out"):
        Alignment.load(path)


@pytest.mark.parametrize("searched", [None, 7, [7], [{}], [{"length": [], "path": 7}], [{"length": [], "path": []}]])
def test_a_provenance_of_any_kind_is_no_hindrance_to_the_refusal(tmp_path: Path, searched: object) -> None:
    edited(tmp_path / "tau.json", '"tau": 0.8,\n', '"tau": 0.13,\n', {"searched": searched})
    with pytest.raises(BadInput, match="was changed after it was calibrated; put"):
        Alignment.load(tmp_path / "tau.json")


def test_what_was_changed_on_purpose_is_read_without_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "tau.json"
    edited(path, '"tau": 0.8,\n', '"tau": 0.13,\n')
    values = json.loads(path.read_text())
    del values["digest"]
    path.write_text(json.dumps(values))
    assert float(Alignment.load(path).tau(128)) == pytest.approx(0.13)


def test_what_does_not_change_the_method_may_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "tau.json"
    edited(path, '"provenance": {', '"provenance": {"note": "mine",')
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    assert Alignment.load(path).provenance["note"] == "mine"


@pytest.mark.parametrize("name", ["statistic", "scope", "train_length", "target", "temperatures", "model", "provenance"])
def test_a_file_without_one_of_its_fields_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tau.json"
    path.write_text(json.dumps({key: value for key, value in document().items() if key != name}))
    with pytest.raises(BadInput, match=f"is damaged: it has no '{name}'"):
        Alignment.load(path)


@pytest.mark.parametrize("lengths", [(256, 128), (128, 128)])
def test_lengths_that_do_not_increase_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="must increase"):
        make(*((length, 0.5) for length in lengths))


def test_lengths_within_the_training_length_are_refused() -> None:
    with pytest.raises(BadInput, match="length 64 is not above the training length 64"):
        make((64, 0.5), (128, 0.5))


def test_an_empty_table_and_a_training_length_of_one_are_refused() -> None:
    with pytest.raises(BadInput, match="at least one length"):
        make()
    with pytest.raises(BadInput, match="train_length must be above 1, not 1"):
        make((128, 0.5), train_length=1)


@pytest.mark.parametrize("tau", [0.0, -0.5, float("nan"), float("inf")])
@pytest.mark.parametrize("scope", ["model", "layer", "head"])
def test_a_tau_that_is_not_positive_is_refused(scope: str, tau: float) -> None:
    tables: dict[str, Table] = {"model": tau, "layer": [0.5, tau], "head": [[0.5, 0.5], [0.5, tau]]}
    with pytest.raises(BadInput, match="a tau at length 128 is not a positive number"):
        make((128, tables[scope]), scope=scope)


@pytest.mark.parametrize(
    ("scope", "tau"), [("model", [0.5]), ("layer", 0.5), ("layer", [[0.5]]), ("head", 0.5), ("head", [0.5])]
)
def test_a_tau_of_the_wrong_depth_is_refused(scope: str, tau: Table) -> None:
    with pytest.raises(BadInput, match=f"scope {scope} needs . levels of lists in tau, .* length 128"):
        make((128, tau), scope=scope)


@pytest.mark.parametrize("tau", [[0.5], [0.5, 0.5, 0.5]])
def test_another_number_of_layers_at_another_length_is_refused(tau: Table) -> None:
    with pytest.raises(BadInput, match="256"):
        make((128, [0.5, 0.5]), (256, tau), scope="layer")


def test_an_alignment_of_no_model_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"the model of an alignment must be its fingerprint, not \{\}"):
        replace(make((128, 0.5)), model={}).save(tmp_path / "tau.json")
    assert [*tmp_path.iterdir()] == []


def test_a_tau_whose_inverse_float32_cannot_hold_is_refused() -> None:
    with pytest.raises(BadInput, match="a tau at length 128 is not a positive number whose inverse float32 can hold"):
        make((128, 1e-40))


def test_a_table_of_no_layers_is_refused() -> None:
    with pytest.raises(BadInput, match="128"):
        make((128, []), scope="layer")
