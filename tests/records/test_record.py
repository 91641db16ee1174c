"""The lines of a run directory: their keys in the file, what identifies one, and what no line may hold."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lengthwise.errors import BadInput
from lengthwise.records import CellKey, Record, RunDirectory, Sharpness, read_lines
from lengthwise.records.append_only import AppendOnly
from tests.records.samples import CONFIG, RECORD, records


def test_a_record_is_one_line_with_the_keys_of_the_contract(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run", CONFIG)
    run.records.append([replace(RECORD, prediction='two\nlines, "quotes" and \u2028')])
    (line,) = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    names = "model method task data length index seed tokens depth prediction target score seconds".split()
    assert list(json.loads(line)) == names
    assert json.loads(line)["prediction"] == 'two\nlines, "quotes" and \u2028'
    assert read_lines(tmp_path / "run" / "records.jsonl", Record) == list(run.records.lines.values())


def test_the_key_is_method_task_data_length_and_index(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    same = [{"model": "x"}, {"seed": 5}, {"tokens": 1}, {"depth": None}, {"prediction": "7"}, {"target": "7"}, {"score": 0.0}]
    run.records.append([RECORD, *(replace(RECORD, **change) for change in same)])
    assert len(run.records.lines) == 1
    kin = [{"method": "log"}, {"task": "line"}, {"data": "f.jsonl"}, {"length": 513}, {"index": 1}]
    run.records.append([replace(RECORD, **change) for change in kin])
    assert len(run.records.lines) == 6
    assert run.of_cell(CellKey("none", "passkey", "", 512)).keys() == {0, 1}


def test_sharpness_lines_are_keyed_by_method_task_and_length(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    line = Sharpness("none", "passkey", 512, 510, [[0.5, 1]], [[1.0]])
    run.sharpness.append([line, replace(line, tokens=9)])
    run.sharpness.append([replace(line, length=1024), line])
    assert [found.length for found in read_lines(tmp_path / "sharpness.jsonl", Sharpness)] == [512, 1024]
    (tmp_path / "sharpness.jsonl").write_text(json.dumps({**asdict(line), "entropy": [["x"]]}) + "\n")
    with pytest.raises(BadInput, match=r"line 1 of .*: entry 1 of entry 1 of its 'entropy' is \"x\", not a number"):
        read_lines(tmp_path / "sharpness.jsonl", Sharpness)


def test_sharpness_of_no_layer_is_refused(tmp_path: Path) -> None:
    line = {"method": "none", "task": "passkey", "length": 512, "tokens": 510, "p_max": [], "entropy": [[1.0]]}
    (tmp_path / "sharpness.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(BadInput, match=r"line 1 of .*: its 'p_max' is \[\], not a list of 1 or more"):
        read_lines(tmp_path / "sharpness.jsonl", Sharpness)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("not JSON", "it is not JSON"),
        ("[1, 2]", "it is not a JSON object"),
        ('{"model": "m"}', "it has no 'method'"),
        (json.dumps({**asdict(RECORD), "mood": "good"}), "it has an unknown key 'mood'"),
        (json.dumps({**asdict(RECORD), "score": "abc"}), "its 'score' is \"abc\", not a number"),
        (json.dumps({**asdict(RECORD), "score": float("nan")}), "it is not JSON: NaN is no number"),
        (json.dumps({**asdict(RECORD), "score": True}), "its 'score' is true, not a number"),
        (json.dumps({**asdict(RECORD), "length": [1]}), r"its 'length' is \[1\], not a whole number"),
        (json.dumps({**asdict(RECORD), "length": 512.5}), r"its 'length' is 512\.5, not a whole number"),
        (json.dumps({**asdict(RECORD), "depth": "deep"}), "its 'depth' is \"deep\", not a number"),
        (json.dumps({**asdict(RECORD), "method": None}), "its 'method' is null, not text"),
        (json.dumps({**asdict(RECORD), "score": 5.0}), r"its 'score' is 5\.0, not at most 1"),
        (json.dumps({**asdict(RECORD), "score": -1}), "its 'score' is -1, not at least 0"),
        (json.dumps({**asdict(RECORD), "depth": 1.5}), r"its 'depth' is 1\.5, not at most 1"),
        (json.dumps({**asdict(RECORD), "depth": -0.5}), r"its 'depth' is -0\.5, not at least 0"),
        (json.dumps({**asdict(RECORD), "index": -1}), "its 'index' is -1, not at least 0"),
        (json.dumps({**asdict(RECORD), "length": -64}), "its 'length' is -64, not at least 1"),
        (json.dumps({**asdict(RECORD), "length": 10**9}), "its 'length' is 1000000000, not at most 1e"),
        (json.dumps({**asdict(RECORD), "length": 10**400}), "it is not JSON: a whole number has more than 40 digits"),
        ("\0\0\0\0", "it is not JSON"),
        ("", "it is not JSON"),
    ],
)
def test_damage_in_the_middle_is_refused_with_the_number_of_the_line(damage: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    AppendOnly(path, Record).append(records(4))
    lines = path.read_text().splitlines()
    lines[2] = damage
    path.write_text("\n".join(lines) + "\n")
    before = path.read_bytes()
    with pytest.raises(BadInput, match=f"line 3 of .*records.jsonl is damaged: {reason}"):
        AppendOnly(path, Record)
    assert path.read_bytes() == before
