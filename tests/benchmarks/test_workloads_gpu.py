"""The benchmark of workloads, on a few tokens and any machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import workloads_gpu
from benchmarks.gpu import workloads
from scripts import generated_tables

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FIELDS = {"workload", "implementation", "seconds", "extra_gb", "best_stock", "ratio", "device", "run", "versions"}


def records(out: Path, *words: str) -> dict[tuple[str, str], dict[str, float]]:
    assert workloads_gpu.main(["--tiny", "--device", "cpu", "--out", str(out), *words]) == 0
    return {(record["workload"], record["implementation"]): record for record in json.loads(out.read_text())}


def test_every_way_is_measured_against_the_fastest_stock_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads_gpu, "WARM_UPS", 1)
    ways = ("eager", "sdpa", "lengthwise")
    out = tmp_path / "records.json"
    found = records(out, "--only", "flan-t5-base 32x512", "--ways", *ways)
    assert [way for _, way in found] == list(ways)
    name = "flan-t5-base 2x24 padded"
    stock = min(found[name, way]["seconds"] for way in ("eager", "sdpa"))
    for record in found.values():
        assert record.keys() >= FIELDS
        assert record["best_stock"] == stock
        assert record["ratio"] == pytest.approx(stock / record["seconds"], rel=1e-3)
    # Another workload comes beside the first, the same one in its place
    found = records(out, "--only", "flan-t5-base 16x512", "--ways", "eager", "lengthwise")
    assert len(found) == 5
    assert len(records(out, "--only", "flan-t5-base 16x512", "--ways", "eager", "lengthwise")) == 5


def test_what_cannot_run_and_what_there_is_no_time_for_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = records(tmp_path / "records.json", "--only", "llama", "--ways", "sdpa", "lengthwise", "--seconds", "1e9")
    assert all(record["seconds"] for record in found.values())
    workloads_gpu.main(["--tiny", "--device", "cpu", "--seconds", "-1"])
    assert "flan-t5-base 32x512 padded: no time" in capsys.readouterr().out


def test_names_tell_workloads_apart() -> None:
    assert len({workload.name for workload in workloads.WORKLOADS}) == len(workloads.WORKLOADS)


def test_the_table_has_the_fastest_stock_way_beside_the_best_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(way: str, seconds: float | None, ratio: float | None, memory: float | None = 1.0) -> dict[str, Any]:
        return {"workload": "base 1x512", "implementation": way, "seconds": seconds, "ratio": ratio, "extra_gb": memory}

    records = [
        record("eager", 0.008, 0.5),
        record("sdpa", None, None),
        record("eager compiled", 0.004, 1.0),
        record("lengthwise", 0.005, 0.8),
        record("lengthwise reduce-overhead", 0.002, 2.0, None),
    ]
    monkeypatch.setattr(generated_tables, "_benchmark", lambda name: records)
    row = generated_tables.workloads_gpu().splitlines()[-1]
    assert row == "| base 1x512 | 8, 1 GB | 5, 1 GB | 1.60 | 4, 1 GB | 2 | 2.00 |"
