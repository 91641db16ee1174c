"""The GPU benchmark on tiny shapes on a CPU: its records, its time limit, and what it makes of records made up here."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu import attention, calibration, command, compile_ahead, encoder, implementations, plan, targets, timing
from benchmarks.gpu.implementations import Inputs, Setting
from benchmarks.gpu.page import page
from benchmarks.gpu.results import Results, read
from benchmarks.gpu.sizes import SHAPES, Shape

FIELDS = {"what", "implementation", "shape", "length", "seconds", "tflops", "extra_gb", "device", "versions"}
CPU = torch.device("cpu")
TINY = Setting(CPU, "auto", heads=2, size=8, dtype=torch.float32)
TINY_SHAPE = Shape(width=32, heads=2, inner=48, layers=2, key_size=8, words=4000, train_length=24)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small encoder, no compiling, short turns."""
    for name in [*SHAPES]:
        monkeypatch.delitem(SHAPES, name)
    monkeypatch.setitem(SHAPES, "tiny", TINY_SHAPE)
    monkeypatch.setattr(plan, "SLOW", ("sdpa_dense_bias", "eager"))
    monkeypatch.setattr(timing, "TURN", 1e-4)
    monkeypatch.setattr(timing, "MOST_ROUNDS", 3)
    encoder.built.cache_clear()


def run(*words: object) -> int:
    given = [str(word) for word in ("--device", "cpu", "--heads", 2, "--size", 8, *words)]
    return command.main(given, time.monotonic(), "")


def of(records: list[dict[str, Any]], what: str) -> dict[tuple[str, int], dict[str, Any]]:
    return {(r["implementation"], r["length"]): r for r in records if r["what"] == what}


@pytest.mark.sweep
@pytest.mark.usefixtures("tiny")
def test_a_run_writes_the_records_that_the_issue_names(tmp_path: Path) -> None:
    out = tmp_path / "some" / "records.json"
    whats = ("attention", "backward", "dropout", "encoder", "training", "calibration")
    assert run("--what", *whats, "--length", 60, "--out", out) == 0
    records = json.loads(out.read_text())
    assert all(r.keys() >= FIELDS for r in records)
    found = of(records, "attention")
    assert {name for name, _ in found} == {*attention.FAST, "sdpa_dense_bias", "eager"}
    # There is no cuDNN on a CPU
    assert found["cudnn", 60]["seconds"] is None
    assert "backend" in found["cudnn", 60]["note"]
    both = found["lengthwise+statistics", 60]
    assert both["tflops"] == pytest.approx(4 * 60**2 * 8 * 2 / both["seconds"] / 1e12, rel=1e-3)
    assert max(both["errors"].values()) < 1e-5
    backward = of(records, "backward")["lengthwise", 60]
    assert backward["timed"] == "forward+backward"
    assert backward["backward_seconds"] > 0
    dropped = of(records, "dropout")
    assert {name for name, _ in dropped} == {*plan.FAST_BACKWARD, "sdpa_dense_bias", "eager"}
    assert dropped["lengthwise", 60]["backward_seconds"] > 0
    assert {name for name, _ in of(records, "encoder")} == set(encoder.IMPLEMENTATIONS)
    steps = of(records, "training")
    assert {name for name, _ in steps} == set(encoder.IMPLEMENTATIONS)
    assert {step["rows"] for step in steps.values()} == {8192 // 60}
    assert not encoder.built("tiny", CPU, torch.float32).training
    assert [(r["scope"], r["seconds"] > 0) for r in records if r["what"] == "calibration"] == [("model", True), ("layer", True)]


@pytest.mark.usefixtures("tiny")
def test_resume_keeps_what_is_there_and_a_plain_run_begins_anew(tmp_path: Path) -> None:
    out = tmp_path / "records.json"
    run("--what", "attention", "--length", 20, "--out", out)
    marked = json.loads(out.read_text())
    for record in marked:
        record["run"] = "earlier"
    out.write_text(json.dumps(marked))
    run("--what", "attention", "--length", 20, 30, "--resume", "--out", out)
    runs = {key: r["run"] for key, r in of(read(out), "attention").items()}
    assert {length for (_, length), when in runs.items() if when == "earlier"} == {20}
    assert {length for (_, length), when in runs.items() if when != "earlier"} == {30}
    run("--what", "attention", "--length", 40, "--out", out)
    assert {length for _, length in of(read(out), "attention")} == {40}


def test_the_file_is_whole_after_every_record_and_knows_one_record_of_each_thing(tmp_path: Path) -> None:
    results = Results(tmp_path / "records.json", "a device")
    results.add("attention", "cudnn", "s", 10, seconds=0.123456)
    assert [r["seconds"] for r in read(tmp_path / "records.json")] == [0.1235]
    results.add("attention", "cudnn", "s", 20, seconds=2.0)
    results.add("attention", "cudnn", "s", 10, seconds=3.0)
    results.mark(results.records[-1], graph_seconds=1.0)
    assert [(r["length"], r["seconds"], r.get("graph_seconds")) for r in read(tmp_path / "records.json")] == [
        (20, 2.0, None),
        (10, 3.0, 1.0),
    ]


@pytest.mark.parametrize(
    ("error", "note"),
    [(torch.OutOfMemoryError("CUDA out of memory. Tried ..."), "out of memory"), (ValueError("why\nmore"), "ValueError: why")],
)
def test_what_cannot_run_is_a_record_with_the_reason(error: Exception, note: str) -> None:
    results = Results(None, "a device")
    with results.attempt("encoder", "transformers_sdpa", "s", 10):
        raise error
    assert results.records[0]["note"] == note
    assert results.records[0]["seconds"] is None


@pytest.mark.usefixtures("tiny")
def test_an_implementation_without_memory_leaves_the_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def short_of_memory(given: Inputs) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(implementations, "_eager", short_of_memory)
    results = Results(None, "a device")
    attention.attention("attention", 20, ["eager", "sdpa_dense_bias"], TINY, results)
    found = of(results.records, "attention")
    assert found["eager", 20]["note"] == "out of memory"
    assert found["sdpa_dense_bias", 20]["seconds"] > 0


def work(items: list[plan.Item], seconds: float) -> None:
    command._work(items, argparse.Namespace(seconds=seconds, resume=False), time.monotonic(), [])


def test_what_there_is_no_time_for_is_left_out_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[str] = []
    items = [plan.Item(0, name, cost, lambda name=name: ran.append(name)) for name, cost in (("a", 1), ("long", 60), ("b", 1))]
    work(items, command.LAST + 30)
    assert ran == ["a", "b"]
    assert "left out for want of time: long" in capsys.readouterr().out


def test_an_item_that_outlasts_the_time_is_stopped_and_a_broken_one_is_not_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[str] = []
    items = [
        plan.Item(0, "broken", 0.0, lambda: 1 / 0),  # type: ignore[arg-type, return-value]
        plan.Item(0, "slow", 0.0, lambda: time.sleep(20)),
        plan.Item(0, "never", 0.0, lambda: ran.append("never")),
    ]
    before = time.monotonic()
    work(items, command.LAST + 0.3)
    assert time.monotonic() - before < 5
    said = capsys.readouterr().out
    assert "failed: broken: ZeroDivisionError" in said
    assert "the time is up" in said
    assert ran == []


def test_what_was_promised_comes_first_and_fits_into_two_minutes() -> None:
    setting = Setting(torch.device("cuda"))
    items = plan.plan(command.WHATS, None, tuple(SHAPES), setting, Results(None, ""))
    order = [item.name for item in items]
    promised = [
        "attention 16384 lengthwise lengthwise+statistics torch_flash cudnn",
        "attention 32768 lengthwise lengthwise+statistics torch_flash cudnn",
        "attention 2048 lengthwise lengthwise+statistics torch_flash cudnn",
        "backward 8192 lengthwise torch_flash cudnn",
        "encoder flan-t5-xl 15000 lengthwise",
        "calibration flan-t5-xl 15000 scope model",
        "calibration flan-t5-xl 15000 scope layer",
    ]
    assert order[: 1 + len(promised)] == ["ceilings", *promised]
    through = order.index("encoder flan-t5-xl 131072 lengthwise")
    assert sum(item.seconds for item in items[: through + 1]) < 60
    # All lengths and shapes of the issue are somewhere
    assert {f"attention {2**power} flex" for power in range(10, 17)} <= set(order)
    assert {f"encoder {shape} {n} transformers_eager" for shape in SHAPES for n in (2048, 8192, 15_000, 32_768)} <= set(order)
    longest = [name for name in order if name.startswith("longest")]
    assert len(longest) == len(SHAPES) * len(encoder.IMPLEMENTATIONS)
    assert all("flan-t5-xl " in name for name in longest[:3])
    assert len(order) == len(set(order))


def test_all_that_have_a_bias_compute_the_same_attention() -> None:
    setting = replace(TINY, dtype=torch.float64)
    given = Inputs.random(300, setting, needs_grad=True)
    query, key, value = (tensor.detach()[0] for tensor in given.of(0))
    distance = torch.arange(300)[None] - torch.arange(300)[:, None]
    bias = given.table.detach()[:, distance.clamp(-128, 128) + 128]
    weights = torch.softmax(implementations.SHARPENING * (query @ key.mT / math.sqrt(8) + bias), -1)
    for name in ("lengthwise", "lengthwise+statistics", "sdpa_dense_bias", "eager"):
        attend = implementations.made(name, given, setting)
        # The eager way has a softmax in float32
        assert torch.allclose(attend.forward(0)[0], weights @ value, atol=1e-6), name
        gradients = torch.autograd.grad(attend.forward(0).sum(), attend.leaves(0))
        assert all(bool(gradient.any()) for gradient in gradients[:3]), name


def test_all_that_are_timed_with_dropout_drop_weights_and_keep_their_mean() -> None:
    given = Inputs.random(40, replace(TINY, dropout=0.5))
    for name in ("lengthwise", "torch_flash", "sdpa_dense_bias", "eager"):
        whole = implementations.made(name, replace(given, dropout=0.0), TINY).forward(0)
        # A backend of its own has dropout on a GPU only
        attend = replace(implementations.made(name, given, TINY), around=nullcontext)
        torch.manual_seed(0)
        drawn = torch.stack([attend.forward(0) for _ in range(400)])
        assert not torch.equal(drawn[0], drawn[1]), name
        assert float((drawn.mean(0) - whole).abs().max()) < 6 * float(drawn.std(0).max()) / 20, name
    with pytest.raises(ValueError, match="FlexAttention has no dropout"):
        implementations.made("flex", given, TINY)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_computes_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    setting = replace(TINY, size=16)
    given = Inputs.random(300, setting)
    ours, theirs = (implementations.made(name, given, setting).forward(0) for name in ("lengthwise", "flex"))
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_errors_see_a_wrong_row_at_either_end(monkeypatch: pytest.MonkeyPatch) -> None:
    given, right = Inputs.random(400, TINY), implementations.attention
    assert max(implementations.errors(given, TINY).values()) < 1e-5
    for row in (0, 399):

        def wrong(*arguments: Any, row: int = row, **options: Any) -> Any:
            output, rows = right(*arguments, **options)
            output[:, :, row] *= 1.5
            rows.entropy[..., row] += 0.25
            rows.p_max[..., row] /= 2
            return output, rows

        monkeypatch.setattr(implementations, "attention", wrong)
        found = implementations.errors(given, TINY)
        assert found["output"] > 1e-3
        assert found["entropy"] == pytest.approx(0.25, abs=1e-4)
        assert found["p_max"] > 1e-4
        monkeypatch.setattr(implementations, "attention", right)


def test_contestants_take_turns_and_the_median_turn_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    clock = 0.0

    def call(name: str, cost: float) -> timing.Contestant:
        def one(_: int) -> None:
            nonlocal clock
            order.append(name)
            # One turn is held up
            clock += cost * (10 if name == "a" and order.count("a") == 5 else 1)

        return timing.Contestant(name, one)

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock)
    found = timing.in_rounds([call("a", 1.0), call("b", 0.25)], CPU, most=6.25)
    assert order == ["a", "a", "b", "b", *["a", "b"] * 5]
    assert (found["a"].seconds, found["b"].seconds, found["b"].rounds) == (1.0, 0.25, 5)
    assert found["b"].spread == 0


def test_a_long_call_is_made_once_and_a_short_one_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 9.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(times))
    assert timing.in_rounds([timing.Contestant("slow", lambda _: None)], CPU)["slow"] == timing.Timed(9.0, 0.0, 1)
    times = iter([0.0, 9.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(times))
    assert timing.repeated(lambda: None, CPU, patience=1.0) == timing.Timed(9.0, 0.0, 1)
    times = iter([0.0, 0.9, 1.0, 1.6, 2.0, 2.6])
    found = timing.repeated(lambda: None, CPU, patience=1.0)
    assert (round(found.seconds, 6), found.rounds) == (0.6, 2)


def test_a_call_that_would_take_a_minute_is_left_out_and_says_so() -> None:
    results = Results(None, "", [made_up("backward", "flex", 16, 12.0, shape=TINY.shape)])
    for length in (32, 64):
        attention.attention("backward", length, ["flex"], TINY, results)
    notes = {record["length"]: (record["seconds"], record.get("note")) for record in results.records}
    assert notes == {
        16: (12.0, None),
        32: (None, "left out: a call would take 48 s, by its time at 16"),
        64: (None, "left out: a call would take 192 s, by its time at 16"),
    }


@pytest.mark.usefixtures("tiny")
def test_operations_of_an_encoder_are_those_that_torch_counts() -> None:
    model = encoder.built("tiny", CPU, torch.float32)
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        encoder._forward(model, 50)
    assert counter.get_total_flops() == TINY_SHAPE.operations(50)


@pytest.mark.usefixtures("tiny")
def test_operations_of_a_training_step_are_those_that_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, counted = encoder.built("tiny", CPU, torch.float32), []

    def record(*given: Any, rows: int) -> None:
        work, operations = given[4:6]
        model.set_attn_implementation("eager")
        with FlopCounterMode(display=False) as counter:
            work(model, 50)
        counted.append((counter.get_total_flops() / operations, rows))

    monkeypatch.setattr(encoder, "_record", record)
    monkeypatch.setattr(encoder, "TOKENS", 150)
    encoder.training("tiny", 50, "eager", TINY, Results(None, ""))
    # A flash backward computes one product of length x length again, an eager one keeps it
    share = 0.5 * 4 * 50**2 * 16 * 2 / TINY_SHAPE.operations(50, training=True)
    assert counted == [(pytest.approx(1 - share, rel=1e-3), 3)]
    assert all(weight.grad is None and not weight.requires_grad for weight in model.parameters())


@pytest.mark.usefixtures("tiny")
def test_the_longest_length_is_found_by_doubling_with_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    model, lengths = encoder.built("tiny", CPU, torch.float32), []

    def forward(model: Any, length: int) -> None:
        lengths.append((length, len(model.encoder.block)))
        if length > 100:
            raise torch.OutOfMemoryError

    monkeypatch.setattr(encoder, "_forward", forward)
    results = Results(None, "")
    encoder.longest("tiny", "lengthwise", 32, 1024, replace(TINY, implementation="auto"), results)
    assert lengths == [(32, 1), (64, 1), (128, 1)]
    assert [(r["what"], r["length"], r["note"]) for r in results.records] == [("longest", 64, "out of memory at 128")]
    assert len(model.encoder.block) == 2


def test_the_last_doubling_is_not_tried_where_memory_cannot_hold_it() -> None:
    assert encoder._beyond(2**21, 112.0, 150.0) == "takes 112 GB above the weights, twice as much is not there"
    assert encoder._beyond(2**21, 70.0, 150.0) == encoder._beyond(2**21, None, 150.0) == "at least; not tried beyond 2,097,152"


def test_the_text_of_a_calibration_has_a_token_a_word() -> None:
    text = calibration.random_text(100, 4000)
    ids = calibration.numbers(text, add_special_tokens=False).input_ids
    assert len(ids) == len(text.split()) == 200
    assert 3 <= min(ids) < max(ids) < 4000


def made_up(what: str, implementation: str, length: int, seconds: float | None, **more: Any) -> dict[str, Any]:
    record = {"what": what, "implementation": implementation, "shape": "s", "length": length, "seconds": seconds}
    rest = {
        "tflops": None if seconds is None else 100.0,
        "extra_gb": 0.5,
        "device": "a GPU",
        "run": "now",
        "versions": {"torch": "9"},
    }
    return {**record, **rest, **more}


RECORDS = [
    made_up("ceiling", "matmul", 8192, 1e-3, shape="8192^3, bfloat16", tflops=790.0),
    made_up("ceiling", "copy", 2**31, 1e-3, tb_s=4.25, tflops=None),
    made_up("attention", "lengthwise", 16_384, 4e-3),
    made_up("attention", "lengthwise+statistics", 16_384, 5e-3, errors={"output": 2e-3, "p_max": 3e-7, "entropy": 0.5}),
    made_up("attention", "torch_flash", 16_384, 7e-3),
    made_up("attention", "cudnn", 16_384, 4.4e-3),
    made_up("attention", "eager", 32_768, None, note="out of memory: needs 344 GB", extra_gb=None),
    made_up("attention", "lengthwise", 32_768, 20e-3),
    made_up("attention", "cudnn", 32_768, 18e-3),
    # Of another run: no ratio
    made_up("attention", "lengthwise", 2048, 1e-4),
    made_up("attention", "torch_flash", 2048, 1e-4, run="before"),
    made_up("backward", "lengthwise", 8192, 6e-3, backward_seconds=4.5e-3),
    made_up("backward", "torch_flash", 8192, 8e-3, backward_seconds=3e-3),
    made_up("encoder", "lengthwise", 15_000, 0.2, shape="flan-t5-xl", extra_gb=0.9),
    made_up("encoder", "transformers_eager", 15_000, 3.7, shape="flan-t5-xl", extra_gb=43.6),
    made_up("encoder", "transformers_sdpa", 15_000, None, shape="flan-t5-xl", note="out of memory", extra_gb=None),
    made_up("encoder", "lengthwise", 131_072, 7.5, shape="flan-t5-xl"),
    # The faster one is of another run: the ratio is to the slower
    made_up("encoder", "lengthwise", 2048, 0.1, shape="flan-t5-xl"),
    made_up("encoder", "transformers_sdpa", 2048, 0.3, shape="flan-t5-xl"),
    made_up("encoder", "transformers_eager", 2048, 0.2, shape="flan-t5-xl", run="before"),
    made_up("longest", "lengthwise", 524_288, None, shape="flan-t5-xl", note="at least; not tried beyond 524,288"),
    made_up("training", "lengthwise", 2048, 0.1, shape="flan-t5-xl", rows=4),
    made_up("training", "transformers_sdpa", 2048, 0.4, shape="flan-t5-xl", rows=4),
    made_up("training", "transformers_eager", 2048, None, shape="flan-t5-xl", note="out of memory", extra_gb=None),
    made_up("calibration", "lengthwise", 15_000, 1.5, shape="flan-t5-xl", scope="model", forwards=3),
]


def test_promises_are_computed_from_the_records_of_one_run() -> None:
    lines = [str(promise) for promise in targets.promises(RECORDS)]
    assert lines == [
        "16k with both statistics / torch flash: 1.4 (>= 1 ok)",
        "16k / cuDNN: 1.1 (>= 0.85 ok)",
        "32k / cuDNN: 0.9 (>= 0.93 MISSED)",
        "2k / torch flash: - (>= 0.8 not measured)",
        "16k with both statistics / cuDNN: 0.88 (goal >= 1 goal missed)",
        "16k, what both statistics cost: 25 % (goal <= 5 % goal missed)",
        "8k backward alone / torch flash: 0.667 (>= 0.8 MISSED)",
        "8k forward and backward / torch flash: 1.33 (>= 0.8 ok)",
        "XL encoder at 15,000: 0.2 s (<= 0.25 s ok)",
        "XL encoder at 15,000 above its weights: 0.9 GB (<= 1.5 GB ok)",
        "XL encoder, longest forward run: 131,072 tokens (>= 131,072 tokens ok)",
        "calibration of XL at 15,000, scope model: 1.5 s (<= 2 s ok)",
        "calibration of XL at 15,000, scope layer: - (<= 1 s not measured)",
        "error of output, relative norm: 0.002 (<= 0.004 ok)",
        "error of p_max, absolute: 3e-07 (<= 1e-05 ok)",
        "error of entropy, absolute: 0.5 (<= 0.001 MISSED)",
    ]


def test_the_page_has_times_ratios_memory_and_what_did_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "records.json"
    out.write_text(json.dumps(RECORDS))
    assert command.main(["--page", "--out", str(out)], 0.0, "") == 0
    text = capsys.readouterr().out.strip()
    assert text == page(RECORDS)
    lines = text.splitlines()
    assert "ran at 790 TFLOP/s and a copy in device memory at 4.25 TB/s" in lines[0]
    assert "| length | lengthwise | lengthwise+statistics | torch_flash | cudnn | eager |" in lines
    assert "| 16,384 | 4, 100 | 5, 100 | 7, 100 | 4.4, 100 | - |" in lines
    assert "| 32,768 | 20, 100 | - | - | 18, 100 | out of memory |" in lines
    assert "| 16,384 | 1.75 | 1.10 | 1.40 | 0.88 |" in lines
    assert "| 8,192 | 6 (4.5), 100 | 8 (3), 100 |" in lines
    assert "| 8,192, backward alone | 0.67 | - |" in lines
    assert "| flan-t5-xl | 15,000 | 0.2, 100 | 0.9 | out of memory | - | 3.7, 100 | 43.6 | 18.5 |" in lines
    assert "| flan-t5-xl | 131,072 | 7.5, 100 | 0.5 | - | - | - | - | - |" in lines
    assert "| flan-t5-xl | 2,048 | 0.1, 100 | 0.5 | 0.3, 100 | 0.5 | 0.2, 100 | 0.5 | 3.0 |" in lines
    assert "| flan-t5-xl | 4 x 2,048 | 0.1, 100 | 0.5 | 0.4, 100 | 0.5 | out of memory | - | 4.0 |" in lines
    assert "- flan-t5-xl, lengthwise: 524,288, at least; not tried beyond 524,288" in lines
    assert "| flan-t5-xl | 15,000 | model | 1.5 | 3 |" in lines


@pytest.mark.parametrize("content", [None, "{", '{"a": 1}', "[1]"])
def test_a_page_without_records_says_what_is_wrong(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.json"
    if content is not None:
        out.write_text(content)
    assert command.main(["--page", "--out", str(out)], 0.0, "") == 2
    assert str(out) in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main([], 0.0, "")
    assert "no CUDA device" in capsys.readouterr().err


def test_tasks_that_compile_ahead_are_waited_for_and_stopped_in_time() -> None:
    def begun(name: str, program: str) -> compile_ahead.Begun:
        command_line = [sys.executable, "-c", program]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return compile_ahead.Begun(compile_ahead.Task("attention", 1, name), subprocess.Popen(command_line, **quiet))

    helpers = [
        begun("fine", ""),
        begun("broken", "raise SystemExit('no kernel')"),
        begun("slow", "import time; time.sleep(60)"),
    ]
    failed = compile_ahead.wait(helpers, time.monotonic() + 2)
    assert failed == ["attention 1 broken: no kernel", "attention 1 slow: took too long"]
    assert all(one.process.poll() is not None for one in helpers)
    for one in helpers:
        one.end()


def test_every_kernel_of_a_run_is_compiled_ahead() -> None:
    names = [str(task) for task in compile_ahead.tasks_for(command.WHATS, [1024, 2048])]
    assert {"attention 1024 flex", "attention 2048 flex", "backward 8192 flex"} <= set(names)
    assert {name.split()[0] for name in names if "flex" not in name} == set(command.WHATS) - {"longest"}
    assert compile_ahead.tasks_for(["longest"], [1024]) == []
