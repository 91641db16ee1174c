"""summary.csv: one line a cell, from the records alone."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from lengthwise.records import RunDirectory, mean_interval, summarise
from tests.records.samples import CONFIG, RECORD, records


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
