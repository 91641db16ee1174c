"""Cells on a local Ray: the same records, a killed worker's cell done by another one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.evaluation.sweep import on_ray
from lengthwise.evaluation.sweep.run_config import parameters_digest
from lengthwise.records import Record, Sharpness, read_lines
from tests.helpers.answering import answering_briefly, saved
from tests.helpers.own_code import METHOD, TASK

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def local() -> Iterator[None]:
    """One Ray for all tests, and one worker at a time: each of their starts takes seconds."""
    on_ray.start(on_ray.LOCAL, ray, num_cpus=1)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(answering_briefly("t5"), tmp_path_factory.mktemp("models") / "t5")


def evaluate(model: Path, out: Path, **options: Any) -> list[Record]:
    loaded = answering_briefly("t5")
    asked = {"methods": ["none", "truncate", "constant:tau=0.5"], "tasks": ["passkey"], "lengths": [240, 300]}
    options = {**asked, "samples": 2, "batch_tokens": 320, "name": str(model), "show_progress": False, **options}
    return lw.evaluate(loaded, ByT5Tokenizer(), out=out, **options)


def untimed(out: Path) -> list[Record]:
    records = read_lines(out / "records.jsonl", Record)
    return sorted((replace(record, seconds=0.0) for record in records), key=lambda record: record.key)


@pytest.mark.usefixtures("local")
def test_ray_on_one_machine_listens_on_loopback_only_and_leaves_signals_alone() -> None:
    import psutil

    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [place for process in family for place in process.net_connections("inet") if place.status == "LISTEN"]
    assert listening
    assert {place.laddr.ip for place in listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_cluster_that_cannot_be_joined_leaves_signals_alone() -> None:
    class Unreachable:
        def init(self, **_: Any) -> None:
            signal.signal(signal.SIGTERM, lambda *_: None)
            raise ConnectionError("nobody there")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(lw.BadInput, match="cannot start Ray here: nobody there; try again"):
        on_ray.start(on_ray.LOCAL, Unreachable())
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("local")
def test_ray_records_what_one_process_does_though_a_worker_is_killed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate(model, tmp_path / "here")
    marker = tmp_path / "killed"

    def kill_first() -> None:
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    class Deadly:
        """Kills the first worker that reads it, before it has spent ten seconds on importing torch."""

        def __reduce__(self) -> Any:
            return kill_first, ()

    deadly = Deadly()

    def killed_once(cell: on_ray.RemoteCell) -> Any:
        assert deadly is None
        return import_module("lengthwise.evaluation.sweep.on_ray").answer_remotely(cell)

    monkeypatch.setattr(on_ray, "answer_remotely", killed_once)
    # Some of it was done before
    evaluate(model, tmp_path / "ray", samples=1)
    evaluate(model, tmp_path / "ray", ray="local")
    assert marker.exists()
    assert untimed(tmp_path / "ray") == untimed(tmp_path / "here")
    lines = [sorted(read_lines(tmp_path / name / "sharpness.jsonl", Sharpness), key=str) for name in ("ray", "here")]
    assert lines[0] == lines[1]
    assert (tmp_path / "ray" / "config.json").read_text() == (tmp_path / "here" / "config.json").read_text()
    assert (tmp_path / "ray" / "summary.csv").read_text() == (tmp_path / "here" / "summary.csv").read_text()
    assert not list((tmp_path / "ray").glob(".*"))


@pytest.mark.usefixtures("local")
def test_code_of_the_users_own_travels_to_workers(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By value: a worker on another machine has no such file, and here it is gone before one could look."""
    own = tmp_path / "mine.py"
    own.write_text(METHOD + TASK)
    options = {"methods": [f"{own}:Sharper:power=2"], "tasks": [f"{own}:DIGITS"], "lengths": [300]}
    evaluate(model, tmp_path / "here", **options)
    real = on_ray.run_jobs

    def without_the_file(*arguments: Any) -> None:
        own.unlink()
        real(*arguments)

    monkeypatch.setattr(on_ray, "run_jobs", without_the_file)
    evaluate(model, tmp_path / "ray", ray="local", **options)
    assert untimed(tmp_path / "ray") == untimed(tmp_path / "here")
    own.write_text(METHOD.replace("return visible", "assert visible.max() < 100, 'too long'\n        return visible"))
    with pytest.raises(lw.BadInput, match=r"mine.py, line 21, in inverse_temperature: AssertionError: too long$"):
        evaluate(model, tmp_path / "failing", ray="local", methods=[f"{own}:Sharper"], lengths=[300])


@pytest.mark.usefixtures("local")
def test_what_a_worker_refuses_is_said_in_one_line(model: Path, tmp_path: Path) -> None:
    with pytest.raises(lw.BadInput, match=r"^no directory /nowhere$"):
        evaluate(model, tmp_path, ray="local", name="/nowhere")


@pytest.mark.usefixtures("local")
@pytest.mark.sweep
def test_work_is_tried_again_three_times_and_no_more(tmp_path: Path) -> None:
    def killed(item: int) -> int:
        with (tmp_path / str(item)).open("a") as file:
            file.write("x")
        if item == 1 or (item == 20 and (tmp_path / "20").read_text() == "x"):
            os.kill(os.getpid(), signal.SIGKILL)
        return 10 * item

    with pytest.raises(lw.BadInput, match="Ray workers died 4 times on one cell"):
        list(on_ray.spread(ray, killed, [1]))
    assert (tmp_path / "1").read_text() == "xxxx"
    # One that is killed once, after others were done
    assert sorted(on_ray.spread(ray, killed, range(2, 30))) == [(item, 10 * item) for item in range(2, 30)]
    assert [(tmp_path / name).read_text() for name in ("2", "20", "29")] == ["x", "xx", "x"]


def test_a_worker_that_reads_another_model_is_refused(model: Path) -> None:
    cluster = on_ray.Cluster("local", str(model), "float32", "cpu", parameters_digest(answering_briefly("t5")))
    loaded, _ = on_ray._loaded(cluster)
    assert on_ray._loaded(cluster)[0] is loaded
    with pytest.raises(lw.BadInput, match="is another model for Ray's workers than for the driver"):
        on_ray._loaded(replace(cluster, parameters="abc"))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", r"nothing answers at the Ray address 127.0.0.1:1: Connection refused"),
        ("ray://127.0.0.1:1", "nothing answers at the Ray address ray://127.0.0.1:1"),
        ("head:ray", "the port of the Ray address 'head:ray' is not a number"),
        ("head", "a Ray address is HOST:PORT, ray://HOST:PORT or auto, not 'head'"),
    ],
)
def test_a_wrong_address_is_refused_at_once(address: str, message: str) -> None:
    with pytest.raises(lw.BadInput, match=message):
        on_ray.start(address, None)


def test_a_ray_that_does_not_start_is_one_line() -> None:
    def init(**_: Any) -> None:
        raise Exception("The current node timed out\nduring startup.")

    with pytest.raises(lw.BadInput, match=r"^cannot start Ray here: The current node timed out during startup; try again"):
        on_ray.start(on_ray.LOCAL, SimpleNamespace(init=init))


def test_without_ray_the_extra_is_named(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(lw.BadInput, match=r"pip install 'lengthwise\[ray\]'"):
        evaluate(model, tmp_path / "run", ray="local")
    assert not (tmp_path / "run").exists()
