"""Run directories: nothing lost, nothing twice, nothing mixed."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import random
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, t

from lengthwise.errors import BadInput
from lengthwise.records import CellKey, Record, RunDirectory, Sharpness, mean_interval, read_lines, summarise
from lengthwise.records.append_only import AppendOnly
from lengthwise.records.locks import claim

RECORD = Record("m", "none", "passkey", "", 512, 0, 0, 510, 0.25, "a 5", "5", 1.0, 0.1)
CONFIG: dict[str, Any] = {
    "format": "lengthwise.run/1",
    "model": {"family": "t5", "name": "m", "layers": 2, "heads": 4, "key_size": 8, "weights": "abc"},
    "settings": {"seed": 0, "dtype": "float32", "train_length": 512},
    "methods": {"none": None},
    "reads": {"none": "whole"},
    "tasks": {"line": "names of flowers"},
    "data": {},
    "given": {"names of flowers": None},
    "made_with": {"lengthwise": "0.1.0"},
}


def records(n: int, **changes: Any) -> list[Record]:
    return [replace(RECORD, index=index, **changes) for index in range(n)]


def changed(part: str, **changes: Any) -> dict[str, Any]:
    return {**CONFIG, part: {**CONFIG[part], **changes}}


def test_a_record_is_one_line_with_the_keys_of_the_contract(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run", CONFIG)
    run.records.append([replace(RECORD, prediction='two\nlines, "quotes" and \u2028')])
    (line,) = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    names = "model method task data length index seed tokens depth prediction target score seconds".split()
    assert list(json.loads(line)) == names
    assert json.loads(line)["prediction"] == 'two\nlines, "quotes" and \u2028'
    assert read_lines(tmp_path / "run" / "records.jsonl", Record) == list(run.records.lines.values())


def test_a_second_process_sees_the_first_ones_records_and_writes_none_twice(tmp_path: Path) -> None:
    one, two = RunDirectory(tmp_path, CONFIG), RunDirectory(tmp_path, CONFIG)
    one.records.append(records(3))
    # The same samples answered by somebody else, and one more
    two.records.append(records(4, prediction="late", seconds=9.0))
    one.records.refresh()
    assert [line.prediction for line in one.of_cell(RECORD.cell).values()] == ["a 5", "a 5", "a 5", "late"]
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 4


def test_the_key_is_method_task_data_length_and_index(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    same = [{"model": "x"}, {"seed": 5}, {"tokens": 1}, {"depth": None}, {"prediction": "7"}, {"target": "7"}, {"score": 0.0}]
    run.records.append([RECORD, *(replace(RECORD, **change) for change in same)])
    assert len(run.records.lines) == 1
    kin = [{"method": "log"}, {"task": "line"}, {"data": "f.jsonl"}, {"length": 513}, {"index": 1}]
    run.records.append([replace(RECORD, **change) for change in kin])
    assert len(run.records.lines) == 6
    assert run.of_cell(CellKey("none", "passkey", "", 512)).keys() == {0, 1}


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, 10**6))
def test_a_line_torn_at_any_byte_is_healed_and_all_lines_before_it_stay(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("torn") / "records.jsonl"
    AppendOnly(path, Record).append(records(5))
    whole = path.read_bytes()
    cut %= len(whole) + 1
    path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    file = AppendOnly(path, Record)
    assert sorted(line.index for line in file.lines.values()) == list(range(kept))
    file.append(records(5))
    assert path.read_bytes() == whole


def test_a_writer_heals_what_another_one_left_torn_while_it_was_open(tmp_path: Path) -> None:
    file = AppendOnly(tmp_path / "records.jsonl", Record)
    file.append(records(1))
    with file.path.open("a") as other:
        other.write('{"model": "m", "meth')
    file.append(records(2))
    assert [line.index for line in read_lines(file.path, Record)] == [0, 1]


def test_a_reader_leaves_a_torn_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    AppendOnly(path, Record).append(records(2))
    torn = path.read_bytes()[:-5]
    path.write_bytes(torn)
    assert len(read_lines(path, Record)) == 1
    assert path.read_bytes() == torn
    assert read_lines(tmp_path / "none.jsonl", Record) == []


def test_a_field_with_a_default_may_be_missing_from_older_lines(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Later:
        name: str
        mood: str = "calm"

        @property
        def key(self) -> str:
            return self.name

    path = tmp_path / "lines.jsonl"
    path.write_text('{"name": "a"}\n{"name": "b", "mood": "wild"}\n')
    assert read_lines(path, Later) == [Later("a"), Later("b", "wild")]
    path.write_text('{"mood": "wild"}\n')
    with pytest.raises(BadInput, match="it has no 'name'"):
        read_lines(path, Later)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("not JSON", "it is not JSON"),
        ("[1, 2]", "it is not a JSON object"),
        ('{"model": "m"}', "it has no 'method'"),
        (json.dumps({**asdict(RECORD), "mood": "good"}), "it has an unknown key 'mood'"),
        (json.dumps({**asdict(RECORD), "score": "abc"}), "its 'score' is 'abc', not float"),
        (json.dumps({**asdict(RECORD), "score": float("nan")}), "its 'score' is nan, not float"),
        (json.dumps({**asdict(RECORD), "score": True}), "its 'score' is True, not float"),
        (json.dumps({**asdict(RECORD), "length": [1]}), r"its 'length' is \[1\], not int"),
        (json.dumps({**asdict(RECORD), "length": 512.5}), r"its 'length' is 512\.5, not int"),
        (json.dumps({**asdict(RECORD), "depth": "deep"}), r"its 'depth' is 'deep', not float \| None"),
        (json.dumps({**asdict(RECORD), "method": None}), "its 'method' is None, not str"),
        (json.dumps({**asdict(RECORD), "score": 5.0}), r"its 'score' is 5\.0, not from 0 to 1"),
        (json.dumps({**asdict(RECORD), "score": -1}), "its 'score' is -1, not from 0 to 1"),
        (json.dumps({**asdict(RECORD), "depth": 1.5}), r"its 'depth' is 1\.5, not from 0 to 1"),
        (json.dumps({**asdict(RECORD), "depth": -0.5}), r"its 'depth' is -0\.5, not from 0 to 1"),
        (json.dumps({**asdict(RECORD), "index": -1}), "its 'index' is -1, not 0 or above"),
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


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendOnly(tmp_path / "records.jsonl", Record)
    file.append(records(1))
    before, write = file.path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, text: write(descriptor, text[:7]))
    with pytest.raises(OSError, match="only 7 of"):
        file.append(records(2))
    monkeypatch.undo()
    assert file.path.read_bytes() == before
    file.append(records(2))
    assert len(read_lines(file.path, Record)) == 2


def _append_for_ever(path: Path, said: Any) -> None:
    file = AppendOnly(path, Record)
    for index in range(10**6):
        file.append([replace(RECORD, index=index, prediction="x" * 5000)])
        said.value = index


def test_a_kill_loses_no_record_whose_append_has_returned(tmp_path: Path) -> None:
    path, randomness, context = tmp_path / "records.jsonl", random.Random(0), multiprocessing.get_context("fork")
    finished = -1
    for _ in range(10):
        said = context.Value("l", -1, lock=False)
        process = context.Process(target=_append_for_ever, args=(path, said))
        process.start()
        time.sleep(randomness.uniform(0.02, 0.2))
        process.kill()
        process.join()
        finished = max(finished, said.value)
        indices = [line.index for line in read_lines(path, Record)]
        # The last append may have reached the disk without being told of
        assert indices == list(range(len(indices)))
        assert len(indices) - 1 >= finished
    assert finished > 10


def _hold(path: Path, held: Any, release: Any) -> None:
    with claim(path) as mine:
        assert mine
        held.set()
        release.wait(10)


def test_a_claim_is_seen_by_others_and_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / ".claim-x"
    context = multiprocessing.get_context("fork")
    for ending in ("release", "kill"):
        held, release = context.Event(), context.Event()
        process = context.Process(target=_hold, args=(path, held, release))
        process.start()
        assert held.wait(10)
        with claim(path) as mine:
            assert not mine
        release.set() if ending == "release" else process.kill()
        process.join(10)
        with claim(path) as mine:
            assert mine
            with claim(path) as again:
                assert not again
        assert not path.exists()


def test_a_claim_on_a_file_that_was_removed_meanwhile_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our opening the file and locking it, its holder finished, removed it, and a third process claimed it."""
    path, fcntl = tmp_path / ".claim-x", pytest.importorskip("fcntl")
    lock, opened = fcntl.flock, []

    def late(descriptor: int, operation: int) -> None:
        if not opened:
            path.unlink()
            opened.append(os.open(path, os.O_RDWR | os.O_CREAT))
            lock(opened[0], fcntl.LOCK_EX)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with claim(path) as mine:
        assert not mine
    os.close(opened[0])


def test_the_config_is_kept_and_methods_and_files_may_grow(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "deep" / "run", CONFIG)
    path = tmp_path / "deep" / "run" / "config.json"
    assert json.loads(path.read_text()) == CONFIG
    written = path.stat().st_mtime_ns
    RunDirectory(path.parent, {**CONFIG, "made_with": {"lengthwise": "9"}})
    assert path.stat().st_mtime_ns == written
    grown = {**CONFIG, "methods": {"@a.json": {"scope": "model"}}, "data": {"f.jsonl": "abc"}, "made_with": {}}
    run = RunDirectory(path.parent, grown)
    assert run.config["methods"] == {"none": None, "@a.json": {"scope": "model"}}
    assert json.loads(path.read_text()) == run.config
    assert run.config["made_with"] == CONFIG["made_with"]
    # Of earlier versions, which did not tell it
    path.write_text(json.dumps({key: value for key, value in CONFIG.items() if key != "given"}))
    assert RunDirectory(path.parent, CONFIG).config["given"] == CONFIG["given"]
    moved = {**CONFIG, "given": {"names of flowers": "/elsewhere"}}
    assert RunDirectory(path.parent, moved).config["given"] == CONFIG["given"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (changed("model", weights="xyz"), "holds records of another model: its weights is abc, this model's is xyz"),
        (changed("model", layers=3), "holds records of another model: its layers is 2, this model's is 3"),
        (changed("settings", seed=1, dtype="bfloat16"), "was begun with another seed: 0 then, 1 now"),
        (changed("settings", train_length=1024), "was begun with another train_length: 512 then, 1024 now"),
        (
            {**CONFIG, "methods": {"@a.json": {"scope": "model", "target": 0.5}}},
            "the method '@a.json' has changed since .*: its target was 0.25 and is 0.5",
        ),
        ({**CONFIG, "data": {"f.jsonl": "new"}}, "the data file 'f.jsonl' has changed since"),
        ({**CONFIG, "tasks": {"line": None}}, "samples of line made of names of flowers, and not of what the package brings"),
    ],
)
def test_another_model_setting_or_alignment_is_refused(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    old = {**CONFIG, "methods": {"@a.json": {"scope": "model", "target": 0.25}}, "data": {"f.jsonl": "old"}}
    RunDirectory(tmp_path, old)
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(BadInput, match=message):
        RunDirectory(tmp_path, config)
    assert (tmp_path / "config.json").read_bytes() == before


def test_the_same_model_in_another_directory_is_the_same_model(tmp_path: Path) -> None:
    RunDirectory(tmp_path, CONFIG)
    assert RunDirectory(tmp_path, changed("model", name="elsewhere")).config["model"]["name"] == "m"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"letter.txt": "dear"}, "is not a run directory, but holds letter.txt"),
        ({"config.json": '{"format": "lengthwise.run/1"}'}, "is not the config of a run directory"),
        ({"config.json": "{"}, "is not the config of a run directory"),
        ({"config.json": "[]"}, "is not the config of a run directory"),
        ({"config.json": json.dumps({**CONFIG, "tasks": 5})}, "config.json is damaged: its 'tasks' is 5, not dict"),
        ({"config.json": json.dumps({**CONFIG, "reads": []})}, r"config.json is damaged: its 'reads' is \[\], not dict"),
        ({"config.json": json.dumps({**CONFIG, "data": {"f": 5}})}, "config.json is damaged: its 'data' is {'f': 5}"),
        ({"config.json": json.dumps({**CONFIG, "methods": {"none": 5}})}, "config.json is damaged: its 'methods' is"),
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


def test_the_summary_comes_from_the_records_alone(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    run.records.append(records(4, method="log", score=0.0, tokens=500))
    run.records.append([*records(3), replace(RECORD, index=3, score=0.0, tokens=514)])
    (tmp_path / "summary.csv").write_text("nonsense")
    run.write_summary()
    rows = list(csv.DictReader((tmp_path / "summary.csv").read_text().splitlines()))
    assert list(rows[0]) == "model method task data length mean low high n tokens".split()
    assert [(row["method"], row["mean"], row["n"], row["tokens"]) for row in rows] == [
        ("log", "0.0", "4", "500.0"),
        ("none", "0.75", "4", "511.0"),
    ]
    assert (float(rows[1]["low"]), float(rows[1]["high"])) == mean_interval([1, 1, 1, 0])[1:]
    assert [cell.n for cell in summarise([])] == []


def test_sharpness_lines_are_keyed_by_method_task_and_length(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    line = Sharpness("none", "passkey", 512, 510, [[0.5, 1]], [[1.0]])
    run.sharpness.append([line, replace(line, tokens=9)])
    run.sharpness.append([replace(line, length=1024), line])
    assert [found.length for found in read_lines(tmp_path / "sharpness.jsonl", Sharpness)] == [512, 1024]
    (tmp_path / "sharpness.jsonl").write_text(json.dumps({**asdict(line), "entropy": [["x"]]}) + "\n")
    with pytest.raises(BadInput, match=r"line 1 of .*: its 'entropy' is \[\['x'\]\], not list\[list\[float\]\]"):
        read_lines(tmp_path / "sharpness.jsonl", Sharpness)


def test_wilson_intervals_are_scipys() -> None:
    for n in (1, 2, 5, 12, 20, 100):
        for right in range(n + 1):
            expected = binomtest(right, n).proportion_ci(method="wilson")
            found = mean_interval([1.0] * right + [0.0] * (n - right))
            assert found == pytest.approx((right / n, expected.low, expected.high), abs=1e-9)


def test_intervals_by_hand() -> None:
    # 8 of 10: centre (0.8 + 0.19207) / 1.38415, half-width 1.95996 * sqrt(0.016 + 0.0096036) / 1.38415
    assert mean_interval([1.0] * 8 + [0.0] * 2) == pytest.approx((0.8, 0.49016, 0.94332), abs=1e-5)
    # Student's t for 3 scores is 4.30265; their standard deviation 0.1
    assert mean_interval([0.4, 0.5, 0.6]) == pytest.approx((0.5, 0.5 - 0.24841, 0.5 + 0.24841), abs=1e-5)
    assert mean_interval([0.4, 0.5, 0.6])[1] == pytest.approx(t.interval(0.95, 2, 0.5, 0.1 / 3**0.5)[0])


def test_one_sample_or_equal_scores_claim_no_certainty() -> None:
    assert mean_interval([1.0])[1:] == pytest.approx((0.2065, 1.0), abs=1e-4)
    mean, low, high = mean_interval([0.5])
    assert low < 0.1 < 0.9 < high
    mean, low, high = mean_interval([0.5, 0.5, 0.5])
    assert low < 0.2 < mean < 0.8 < high


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
@example([3.472016818133758e-13, 3.472016818133758e-13])
def test_an_interval_holds_its_mean_and_stays_between_0_and_1(scores: list[float]) -> None:
    mean, low, high = mean_interval(scores)
    assert 0 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1
