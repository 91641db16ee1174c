"""Run directories: shared by processes, and never made of a directory of something else."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from lengthwise.errors import BadInput
from lengthwise.records import RunDirectory
from tests.records.samples import CONFIG, RECORD, records


def test_a_second_process_sees_the_first_ones_records_and_writes_none_twice(tmp_path: Path) -> None:
    one, two = RunDirectory(tmp_path, CONFIG), RunDirectory(tmp_path, CONFIG)
    one.records.append(records(3))
    # The same samples answered by somebody else, and one more
    two.records.append(records(4, prediction="late", seconds=9.0))
    one.records.refresh()
    assert [line.prediction for line in one.of_cell(RECORD.cell).values()] == ["a 5", "a 5", "a 5", "late"]
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"letter.txt": "dear"}, "is not a run directory, but holds letter.txt"),
        ({"summary.csv": "mine"}, "is not a run directory, but holds summary.csv"),
        ({"config.json": '{"format": "lengthwise.run/1"}'}, "config.json is damaged: it has no 'model'"),
        ({"config.json": '{"model_type": "t5"}'}, "is not the config of a run directory"),
        ({"config.json": "{"}, "is not the config of a run directory"),
        ({"config.json": "[]"}, "is not the config of a run directory"),
        ({"config.json": json.dumps({**CONFIG, "tasks": 5})}, "config.json is damaged: its 'tasks' is 5, not an object"),
        ({"config.json": json.dumps({**CONFIG, "reads": []})}, r"config.json is damaged: its 'reads' is \[\], not an object"),
        (
            {"config.json": json.dumps({**CONFIG, "data": {"f": 5}})},
            "config.json is damaged: the 'f' in its 'data' is 5, not text",
        ),
        (
            {"config.json": json.dumps({**CONFIG, "methods": {"none": 5}})},
            "the 'none' in its 'methods' is 5, not an alignment, another object, a list of such or null",
        ),
        ({"config.json": json.dumps({**CONFIG, "format": "lengthwise.run/9"})}, "its format is 'lengthwise.run/9'"),
        ({"records.jsonl": json.dumps(asdict(RECORD)) + "\n"}, "holds records but no config.json"),
    ],
)
def test_other_directories_are_refused_and_left_alone(content: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=message):
        RunDirectory(tmp_path, CONFIG)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == content


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(BadInput, match=r"cannot use .*run as a run directory"):
        RunDirectory(tmp_path / "run", CONFIG)


def test_what_a_kill_leaves_beside_the_files_does_not_make_the_directory_foreign(tmp_path: Path) -> None:
    for name in (".part-config.json", ".claim-abc", "records.jsonl"):
        (tmp_path / name).write_text("")
    run = RunDirectory(tmp_path, CONFIG)
    assert (tmp_path / "config.json").exists()
    run.write_summary()
    assert not (tmp_path / ".part-config.json").exists()
