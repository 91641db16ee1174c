"""`lengthwise train`: the loss it starts from, what it leaves behind, going on after a kill, and what it refuses."""

from __future__ import annotations

import gc
import importlib
import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn.parallel import DistributedDataParallel
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.cli import run
from lengthwise.common.text import shipped_prose
from lengthwise.models.load import load
from lengthwise.training.callbacks import LossesCallback
from tests.conftest import TRAIN_LENGTH, Said, logits, make, tokens
from tests.training.output_alignment.training import in_two_processes

# Rows of 64 + 32 tokens, and as many as the steps need
SMALL: dict[str, Any] = {"train_length": 2 * TRAIN_LENGTH, "steps": 5, "batch": 2, "save_every": 2, "warmup": 1}
SMALL |= {"learning_rate": 0.01, "device": "cpu", "show_progress": False}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make("llama").save_pretrained(folder)
    ByT5Tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "prose.txt"
    path.write_text(shipped_prose()[:4000])
    return path


@pytest.fixture(scope="module")
def whole(model: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], lw.Trained]:
    """A run of each adjustment, undisturbed; made when first asked for."""
    made: dict[str, lw.Trained] = {}

    def trained(adjustment: str) -> lw.Trained:
        if adjustment not in made:
            out = tmp_path_factory.mktemp("whole") / "run"
            made[adjustment] = lw.train(str(model), out, data=[str(text)], **SMALL, **options_of(adjustment))
        return made[adjustment]

    return trained


def options_of(adjustment: str) -> dict[str, Any]:
    if adjustment == "clex with lora":
        return {"adjustment": "clex", "lora_rank": 4}
    return {"adjustment": adjustment, "quantise": False if adjustment.startswith("longqlora") else None}


@pytest.fixture(scope="module")
def stopped(model: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended after its checkpoint of step 4."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patched:
        killed_at(4, patched)
        with pytest.raises(KeyboardInterrupt):
            lw.train(str(model), out, data=[str(text)], **SMALL)
    return out


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_first_loss_is_that_of_transformers_own_interpolation(model: Path, text: Path, tmp_path: Path) -> None:
    """One step over all rows, so that their order does not matter; both losses written out."""
    options = {**SMALL, "steps": 1, "batch": 8, "alpha": 0.3, "seed": 3, "sampling": "L/4..L/2"}
    trained = lw.train(str(model), tmp_path / "run", data=[str(text)], adjustment="interpolation:factor=2", **options)
    assert trained.method == "interpolation:factor=2"
    config = tf.AutoConfig.from_pretrained(model)
    config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
    stock = tf.LlamaForCausalLM.from_pretrained(model, config=config)
    stream = [sign + 3 for sign in text.read_bytes()]
    rows = torch.tensor(stream[: 8 * 96]).view(8, 96)
    seen = []
    for extra in range(16, 33):
        one, other = (logits(stock, rows[:, start : start + 64]).double().log_softmax(-1) for start in (0, extra))
        crossed = [-one[b, i, rows[b, i + 1]] for b in range(8) for i in range(63)]
        crossed += [-other[b, i, rows[b, extra + i + 1]] for b in range(8) for i in range(63)]
        y, y2 = one[:, extra:], other[:, : 64 - extra]
        apart = -(y2.exp() * y + y.exp() * y2).sum(-1).mean()
        seen.append((float(torch.stack(crossed).mean()), float(apart)))
    line = trained.losses[0]
    near = [pair for pair in seen if abs(pair[0] - line["cross_entropy"]) < 1e-4 and abs(pair[1] - line["misalignment"]) < 1e-4]
    assert near, (line, seen)
    assert line["loss"] == pytest.approx(line["cross_entropy"] + 0.3 * line["misalignment"], rel=1e-5)


@pytest.mark.parametrize("adjustment", ["none", "clex", "clex with lora", "eabf", "longqlora"])
def test_every_adjustment_learns_and_leaves_a_model_that_loads(
    adjustment: str, whole: Callable[[str], lw.Trained], model: Path
) -> None:
    trained = whole(adjustment)
    assert [line["step"] for line in trained.losses] == [1, 2, 3, 4, 5]
    assert trained.losses[-1]["loss"] < trained.losses[0]["loss"]
    folder = Path(trained.model).parent
    expected = {"clex": f"clex:weights={folder}/clex.safetensors", "clex with lora": f"clex:weights={folder}/clex.safetensors"}
    expected |= {"longqlora": "interpolation:factor=2"}
    assert trained.method == expected.get(adjustment, adjustment) == (folder / "method.txt").read_text().strip()
    saved, _ = load(trained.model, device="cpu")
    assert set(saved.state_dict()) == set(make("llama").state_dict())
    assert saved.config.use_cache
    ids = tokens(50)
    with lw.extend(saved, trained.method):
        said = logits(saved, ids)
        assert saved.generate(ids, max_new_tokens=3, do_sample=False).shape[1] == 53
    with lw.extend(load(str(model), device="cpu")[0], "none" if "clex" in adjustment else trained.method) as untrained:
        assert not torch.allclose(logits(untrained, ids), said, atol=1e-3)
    kept = json.loads((folder / "config.json").read_text())["settings"]
    assert kept["shifted_sparse"] == (adjustment == "longqlora")


def test_callbacks_go_along_and_change_nothing(
    whole: Callable[[str], lw.Trained], model: Path, text: Path, tmp_path: Path
) -> None:
    seen: dict[int, torch.Tensor] = {}

    class Watching(tf.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
            seen[state.global_step] = model.lm_head.weight.detach().clone()

    trained = lw.train(str(model), tmp_path / "run", data=[str(text)], callbacks=[Watching()], **SMALL)
    assert list(seen) == [1, 2, 3, 4, 5]
    assert trained.losses == whole("none").losses
    assert torch.equal(seen[5], load(trained.model, device="cpu")[0].lm_head.weight)
    assert not torch.equal(seen[4], seen[5])


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . PytorchStreamWriter failed writing file data.pkl"),
        RuntimeError("Parent directory run/checkpoints/checkpoint-12 does not exist."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_disk_that_fills_while_a_checkpoint_is_written_is_told_in_one_line(
    model: Path, text: Path, tmp_path: Path, error: Exception
) -> None:
    class Filling(tf.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            raise error

    with pytest.raises(
        lw.BadInput, match=rf"^cannot write {tmp_path}/run: .*{re.escape(str(error)[-20:])}; give another place$"
    ):
        lw.train(str(model), tmp_path / "run", data=[str(text)], callbacks=[Filling()], **SMALL)


@pytest.mark.parametrize(
    ("error", "begun"),
    [
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), False),
    ],
)
def test_memory_that_runs_out_is_no_fault_of_the_disk_or_of_a_checkpoint(
    error: Exception,
    begun: bool,
    stopped: Path,
    whole: Callable[[str], lw.Trained],
    lengthwise: Callable[..., Said],
    model: Path,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a step, or while a checkpoint is read; what was saved stays, and the same run goes on from there."""

    def exhausted(*_: Any, **__: Any) -> Any:
        raise error

    out = Path(shutil.copytree(stopped, tmp_path / "run"))
    same = ["--batch", 2, "--save-every", 2, "--warmup", 1, "--learning-rate", 0.01, "--train-length", 64, "--device", "cpu"]
    with monkeypatch.context() as patched:
        patched.setattr(LossesCallback, "on_step_begin" if begun else "on_train_begin", exhausted)
        said = lengthwise("train", model, "--data", text, "--steps", 5, *same, "--out", out)
    assert (said.status, said.out) == (2, "")
    assert said.err[-1].startswith("lengthwise: there is not enough memory; give smaller batches")
    assert lw.train(str(model), out, data=[str(text)], **SMALL).losses == whole("none").losses


def test_the_merged_model_is_the_base_with_the_adapter(whole: Callable[[str], lw.Trained], model: Path) -> None:
    from peft import PeftModel

    trained, ids = whole("longqlora"), tokens(40)
    base = tf.LlamaForCausalLM.from_pretrained(model)
    plain = logits(base, ids)
    adapted = PeftModel.from_pretrained(base, str(Path(trained.model).parent / "adapter")).eval()
    expected = logits(adapted, ids)
    torch.testing.assert_close(logits(tf.LlamaForCausalLM.from_pretrained(trained.model), ids), expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(plain, expected, atol=1e-3)


def test_lora_over_narrow_weights_is_merged_into_the_wide_ones(
    whole: Callable[[str], lw.Trained], model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy stands in for the 4-bit model, which needs a GPU: so the result must be that of LoRA on the model itself."""
    copies = []

    def copied(name: str, arguments: Any) -> Any:
        copies.append(load(name, "float32", "cpu")[0])
        return copies[-1]

    monkeypatch.setattr("lengthwise.training.adjustment.can_quantise", lambda: True)
    monkeypatch.setattr(importlib.import_module("lengthwise.training.train"), "quantised", copied)
    trained = lw.train(str(model), tmp_path / "run", data=[str(text)], adjustment="longqlora", **SMALL)
    assert len(copies) == 1
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["quantised"]
    found, expected = (load(run.model, device="cpu")[0].state_dict() for run in (trained, whole("longqlora")))
    assert trained.losses == whole("longqlora").losses
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, msg=name)


def test_clex_learns(whole: Callable[[str], lw.Trained]) -> None:
    for adjustment in ("clex", "clex with lora"):
        learnt = load_file(Path(whole(adjustment).model).parent / "clex.safetensors")
        assert float(learnt["down"].abs().max()) > 1e-3


def test_a_table_of_biases_learns_and_goes_on_after_a_kill(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SMALL, "adjustment": "t5_bias", "data": [str(text)]}
    plain, whole, resumed = (
        lw.train(str(model), tmp_path / "plain", **{**options, "adjustment": "none"}),
        lw.train(str(model), tmp_path / "whole", **options),
        tmp_path / "resumed",
    )
    learnt = tmp_path / "whole" / "t5_bias.safetensors"
    assert whole.method == f"t5_bias:weights={learnt}"
    assert float(load_file(learnt)["table"].abs().max()) > 1e-3
    # Zero at first, it then has a say
    assert whole.losses[0]["loss"] == pytest.approx(plain.losses[0]["loss"], rel=1e-4)
    assert whole.losses[-1]["loss"] != plain.losses[-1]["loss"]
    with monkeypatch.context() as patched:
        killed_at(3, patched)
        with pytest.raises(KeyboardInterrupt):
            lw.train(str(model), resumed, **options)
    assert lw.train(str(model), resumed, **options).losses == whole.losses
    assert load_file(resumed / "t5_bias.safetensors")["table"].equal(load_file(learnt)["table"])


def test_scales_of_heads_learn_alone_and_are_used_again(model: Path, text: Path, tmp_path: Path) -> None:
    """As their paper does: the weights of the model stay as they are, to the last bit."""
    options = {**SMALL, "data": [str(text)], "learning_rate": 0.1}
    trained = lw.train(str(model), tmp_path / "run", adjustment="head_scale:start=1.2", **options)
    learnt = tmp_path / "run" / "head_scale.safetensors"
    assert trained.method == f"head_scale:start=1.2,weights={learnt}"
    before, after = load(str(model), device="cpu")[0], load(trained.model, device="cpu")[0]
    assert all(torch.equal(old, new) for old, new in zip(before.parameters(), after.parameters(), strict=True))
    scale = load_file(learnt)["scale"]
    assert scale.shape == (3, 4)
    assert float((scale - 1.2).abs().min()) > 0
    with lw.extend(after, trained.method):
        used = logits(after, tokens(40))
    with lw.extend(after, "head_scale:start=1.2"):
        assert not torch.allclose(used, logits(after, tokens(40)), atol=1e-4)


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_an_alignment_goes_along_with_the_trained_model(model: Path, text: Path, tmp_path: Path, lora_rank: int) -> None:
    own, tokenizer = load(str(model), device="cpu")
    path, out = tmp_path / "a.json", tmp_path / "run"
    alignment = lw.calibrate(own, tokenizer, 64, train_length=32, show_progress=False)
    alignment.save(path)
    options = {**SMALL, "adjustment": f"@{path}", "data": [str(text)], "lora_rank": lora_rank}
    trained = lw.train(str(model), out, **options)
    assert trained.method == f"@{out / 'alignment.json'}"
    with lw.extend(load(trained.model, device="cpu")[0], trained.method):
        pass
    kept = lw.Alignment.load(out / "alignment.json")
    assert kept.temperatures == alignment.temperatures
    assert kept.model["name"] == trained.model
    assert kept.provenance["trained_from"] == alignment.model
    # The same name, another file
    replace(alignment, provenance={"text": "another"}).save(path)
    with pytest.raises(lw.BadInput, match=r"^the file that the adjustment names has changed since .*; give another --out$"):
        lw.train(str(model), out, **options)


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_step_begin(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(LossesCallback, "on_step_begin", on_step_begin)


def interrupt(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("adjustment", ["none", "clex with lora", pytest.param("longqlora", marks=pytest.mark.sweep)])
def test_the_same_command_goes_on_after_a_kill_to_the_same_losses(
    adjustment: str,
    whole: Callable[[str], lw.Trained],
    model: Path,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "run"
    options = {**SMALL, **options_of(adjustment), "data": [str(text)]}
    for step in (0, 3):
        with monkeypatch.context() as patched:
            killed_at(step, patched)
            with pytest.raises(KeyboardInterrupt):
                lw.train(str(model), out, **options)
        assert not (out / "method.txt").exists()
    assert [json.loads(line)["step"] for line in (out / "losses.jsonl").read_text().splitlines()] == [1, 2, 3]
    straight = whole(adjustment)
    # As a kill leaves it while a model is saved
    shutil.copytree(model, out / ".part-model" / "new")
    resumed = lw.train(str(model), out, **options)
    assert not (out / ".part-model").exists()
    assert resumed.losses == straight.losses
    weights, expected = (tf.LlamaForCausalLM.from_pretrained(run.model).state_dict() for run in (resumed, straight))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    before = everything_in(out)
    assert lw.train(str(model), out, **options) == resumed
    assert everything_in(out) == before
    # Killed before its last word, a run finds what it saved
    (out / "method.txt").unlink()
    assert lw.train(str(model), out, **options) == resumed


def test_a_run_killed_after_its_last_checkpoint_takes_no_further_step(model: Path, tmp_path: Path) -> None:
    out, short = tmp_path / "run", tmp_path / "short.txt"
    # Three rows of 96 tokens, so that the last step is within an epoch
    short.write_text(shipped_prose()[:300])
    options = {**SMALL, "data": [str(short)], "batch": 1, "steps": 4}
    trained = lw.train(str(model), out, **options)
    expected = load_file(out / "model" / "model.safetensors")
    (out / "method.txt").unlink()
    shutil.rmtree(out / "model")
    assert lw.train(str(model), out, **options) == trained
    weights = load_file(out / "model" / "model.safetensors")
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("optimizer.pt", b"cposix\nsystem\n(S'exit 1'\ntR.", "optimizer.pt"),
        ("optimizer.pt", None, "optimizer.pt"),
        ("scheduler.pt", b"", "scheduler.pt"),
        ("rng_state.pth", b"no state", "rng_state.pth"),
        ("model.safetensors", b"no weights", ""),
        ("trainer_state.json", b'{"steps": "many"}', ""),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_serves(
    file: str, content: bytes | None, named: str, stopped: Path, model: Path, text: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(stopped, tmp_path / "run"))
    last = out / "checkpoints" / "checkpoint-4"
    (last / file).write_bytes((last / file).read_bytes()[:-100] if content is None else content)
    with pytest.raises(lw.BadInput) as caught:
        lw.train(str(model), out, data=[str(text)], **SMALL)
    assert str(caught.value).startswith(f"{last / named} is damaged: ")
    assert str(caught.value).endswith(f"; remove {last}, and training goes on from the one before, or from the start")
    assert len(str(caught.value).splitlines()) == 1


def test_a_run_killed_before_its_first_checkpoint_says_that_it_starts_over(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        killed_at(1, patched)
        with pytest.raises(KeyboardInterrupt):
            lw.train(str(model), tmp_path / "run", data=[str(text)], **SMALL)
    with pytest.warns(UserWarning, match=rf"^no checkpoint is in {tmp_path}/run yet: training starts over at step 1$"):
        lw.train(str(model), tmp_path / "run", data=[str(text)], **SMALL)
    assert shown_steps(tmp_path / "run") == [1, 2, 3, 4, 5]


def shown_steps(out: Path) -> list[int]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return [event.step for event in EventAccumulator(str(out / "tensorboard")).Reload().Scalars("train/loss")]


def test_tensorboard_shows_the_losses_once(
    whole: Callable[[str], lw.Trained], model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with monkeypatch.context() as patched:
        killed_at(3, patched)
        with pytest.raises(KeyboardInterrupt):
            lw.train(str(model), tmp_path / "run", data=[str(text)], **SMALL)
    trained = lw.train(str(model), tmp_path / "run", data=[str(text)], **SMALL)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    found = {event.step: event.value for event in events.Scalars("train/loss")}
    assert found == pytest.approx({line["step"]: line["loss"] for line in trained.losses})
    assert len(events.Scalars("train/loss")) == 5


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")
def test_alpha_0_and_bfloat16_on_whatever_device_there_is(model: Path, text: Path, tmp_path: Path) -> None:
    options = {**SMALL, "steps": 2, "alpha": 0.0, "dtype": "bfloat16", "adjustment": "eabf", "device": None}
    trained = lw.train(str(model), tmp_path / "run", data=[str(text)], **options)
    assert all("misalignment" not in line and line["loss"] == pytest.approx(line["cross_entropy"]) for line in trained.losses)
    assert all(p.dtype == torch.float32 for p in tf.LlamaForCausalLM.from_pretrained(trained.model).parameters())


def test_a_run_that_breaks_ends_there_and_leaves_no_model(model: Path, text: Path, tmp_path: Path) -> None:
    out, options = tmp_path / "run", {**SMALL, "steps": 4, "warmup": 0, "learning_rate": 1e30}
    with pytest.raises(lw.BadInput, match=r"^the loss of step 2 is nan.*; give a smaller --learning-rate and a new --out$"):
        lw.train(str(model), out, data=[str(text)], **options)
    # transformers would leave it out of what it logs, and tell 0
    broken = json.loads((out / "losses.jsonl").read_text().splitlines()[-1])
    assert math.isnan(broken["loss"])
    assert not (out / "model").exists()


def test_a_run_whose_last_gradient_breaks_its_weights_leaves_no_model(model: Path, text: Path, tmp_path: Path) -> None:
    """The loss of that step, which the weights before it have, is still a number."""
    options = {**SMALL, "steps": 2, "warmup": 0, "learning_rate": 1e3}
    with pytest.raises(lw.BadInput, match=r"^the gradient of step 2 is nan.*; give a smaller --learning-rate and a new --out$"):
        lw.train(str(model), tmp_path / "run", data=[str(text)], **options)
    assert [path.name for path in (tmp_path / "run").glob("model")] == []


def test_a_run_that_a_callback_stops_is_finished_there(
    whole: Callable[[str], lw.Trained], model: Path, text: Path, tmp_path: Path
) -> None:
    class Stopping(tf.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step == 3

    options = {**SMALL, "data": [str(text)], "callbacks": [Stopping()]}
    trained = lw.train(str(model), tmp_path / "run", **options)
    assert trained.losses == whole("none").losses[:3]
    assert lw.train(str(model), tmp_path / "run", **options) == trained


def test_two_processes_learn_what_one_does(
    whole: Callable[[str], lw.Trained], model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"train {model} --data {text} --out {tmp_path}/run --adjustment clex --lora-rank 4 --batch 1 --save-every 2"
    command += " --train-length 64 --steps 5 --warmup 1 --learning-rate 0.01 --device cpu"
    # First, so that what training imports is there when the processes fork
    straight = whole("clex with lora")
    end_training = Accelerator.end_training

    def end_without_wrappers(accelerator: Accelerator) -> None:
        assert not [held for held in gc.get_objects() if isinstance(held, DistributedDataParallel)]
        end_training(accelerator)

    monkeypatch.setattr(Accelerator, "end_training", end_without_wrappers)
    printed = in_two_processes(lambda rank: run(command.split()), tmp_path)
    found = json.loads((tmp_path / "run" / "config.json").read_text())
    assert found["settings"]["processes"] == 2
    # Only the first process prints
    assert [len(text.splitlines()) for text in printed] == [4, 0]
    losses = [json.loads(line) for line in (tmp_path / "run" / "losses.jsonl").read_text().splitlines()]
    for line, expected in zip(losses, straight.losses, strict=True):
        assert line == pytest.approx(expected, rel=1e-4)


FLAGS = ("--train-length", 64, "--steps", 2, "--device", "cpu", "--warmup", 0)


def test_flags_win_over_the_file(lengthwise: Callable[..., Said], model: Path, text: Path, tmp_path: Path) -> None:
    settings = {"model": str(model), "data": [str(text)], "train-length": 48, "steps": 2, "alpha": 0.3, "device": "cpu"}
    file = tmp_path / "settings.yaml"
    # JSON is YAML
    file.write_text(json.dumps(settings))
    out = tmp_path / "run"
    said = lengthwise("train", "--config", file, "--out", out, "--alpha", 0, "--json")
    assert said.status == 0, said.err
    kept = json.loads((out / "config.json").read_text())["settings"]
    assert (kept["alpha"], kept["train_length"], kept["steps"]) == (0.0, 48, 2)
    document = json.loads(said.out)
    assert document["method"] == "none"
    assert [line["step"] for line in document["losses"]] == [1, 2]
    assert [line.split(":")[0] for line in said.err] == ["step 1 of 2", "step 2 of 2"]


def test_the_command_prints_the_ends_of_the_curve(
    lengthwise: Callable[..., Said], model: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    said = lengthwise("train", model, "--data", text, "--out", out, "--adjustment", "yarn:factor=2", *FLAGS)
    assert said.status == 0, said.err
    head, first, last, end = said.out.splitlines()
    assert head.split() == ["step", "loss", "cross-entropy", "misalignment"]
    assert [line.split()[0] for line in (first, last)] == ["1", "2"]
    assert end == f"{out}/model: use it with the method yarn:factor=2"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--alpha", -1), "alpha must be a number from 0 on, not -1.0; the paper takes 0.1 to 0.3"),
        (("--compare", "l2"), "compare must be one of sce, kl, not 'l2'"),
        (("--adjustment", "clexx"), "no method 'clexx' in 'clexx'; did you mean 'clex'?"),
        (("--adjustment", "yarn"), "method 'yarn' needs factor; write yarn:factor=..."),
        (("--train-length", 3000), "the text has 4001 tokens, and one row takes 4500; give more text"),
        (("--dataset", "x"), "give what to train on"),
        (("--seed", 2**32), "--seed must be below 4294967296, not 4294967296"),
        (("--adjustment", "clex+t5_bias"), "clex and t5_bias both learn; train with one of them at a time"),
        (("--stretch", 2, "--adjustment", "clex"), "clex draws t from 2 on at length 64"),
        (("--stretch", 8), "--stretch is of the adjustment clex, and this one is none; leave --stretch out"),
        (("--config", "missing.yaml"), "cannot read the settings missing.yaml"),
        # No step would reach them
        (("--data", "missing.txt"), "cannot read the text file missing.txt: No such file or directory"),
        (("--data", "/dev/null"), "cannot read the text file /dev/null: it is a device, not a file"),
        (("--data", sys.executable), f"{sys.executable} is not UTF-8 text"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    lengthwise: Callable[..., Said], model: Path, text: Path, tmp_path: Path, flags: tuple[object, ...], message: str
) -> None:
    out = tmp_path / "run"
    said = lengthwise("train", model, "--data", text, "--out", out, *FLAGS, *flags)
    assert (said.status, len(said.err), said.out) == (2, 1, "")
    assert said.err[0].startswith(f"lengthwise: {message}")
    assert not out.exists()


def test_models_that_cannot_be_trained_so_are_refused(
    lengthwise: Callable[..., Said], model: Path, text: Path, tmp_path: Path
) -> None:
    narrow = tmp_path / "narrow"
    small = tf.LlamaForCausalLM(tf.LlamaConfig(**{**make("llama").config.to_dict(), "vocab_size": 200}))
    small.save_pretrained(narrow)
    ByT5Tokenizer().save_pretrained(narrow)
    wide = tmp_path / "wide"
    tf.LlamaForCausalLM(tf.LlamaConfig(**{**make("llama").config.to_dict(), "vocab_size": 768})).save_pretrained(wide)
    ByT5Tokenizer().save_pretrained(wide)
    for name, message in (
        (wide, "the tokenizer has 384 tokens only, and the model knows 768; this is another model's tokenizer"),
        (narrow, "the tokenizer has 256 tokens, and the model knows 200 tokens only; this is another model's tokenizer"),
        ("embedded", "training takes a causal language model, and embedded is a T5ForConditionalGeneration"),
        (tmp_path / "tiny.gguf", f"{tmp_path}/tiny.gguf is a GGUF file, made to be read only; give the model as a directory"),
        (tmp_path / "none", f"no directory {tmp_path}/none"),
    ):
        said = lengthwise("train", name, "--data", text, "--out", tmp_path / "run", *FLAGS)
        assert (said.status, len(said.err)) == (2, 1)
        assert said.err[0].startswith(f"lengthwise: {message}")
        assert not (tmp_path / "run").exists()


def test_a_directory_of_another_run_is_left_as_it_is(
    lengthwise: Callable[..., Said], whole: Callable[[str], lw.Trained], model: Path, text: Path, tmp_path: Path
) -> None:
    out = Path(whole("none").model).parent
    before = everything_in(out)
    other = tmp_path / "other.txt"
    other.write_text(shipped_prose()[500:4500])
    same = ["--batch", 2, "--save-every", 2, "--warmup", 1, "--learning-rate", 0.01, "--train-length", 64, "--device", "cpu"]
    same += ["--steps", 5, "--out", out]
    for flags, message in (
        (["--alpha", 0.3, "--data", text], f"{out} was begun with another alpha: 0.1 then, 0.3 now; give another --out"),
        (["--adjustment", "eabf", "--data", text], f"{out} was begun with another adjustment: none then, eabf now"),
        (["--compare", "kl", "--data", text], f"{out} was begun with another compare: sce then, kl now"),
        (["--data", other], f"{out} was begun with other text or another tokenizer; give another --out"),
    ):
        said = lengthwise("train", model, *same, *flags)
        assert (said.status, len(said.err)) == (2, 1)
        assert said.err[0].startswith(f"lengthwise: {message}")
    assert lengthwise("train", model, *same, "--data", text).status == 0
    assert everything_in(out) == before


def test_a_finished_run_whose_losses_are_gone_or_damaged(
    lengthwise: Callable[..., Said], model: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = ("train", model, "--data", text, "--out", out, *FLAGS)
    last = lengthwise(*command).out.splitlines()[-1]
    losses = out / "losses.jsonl"
    losses.write_text(losses.read_text() + "garbage\n")
    said = lengthwise(*command)
    assert (said.status, said.out) == (2, "")
    assert said.err == [
        f"lengthwise: line 3 of {losses} is damaged: it is not JSON: Expecting value at letter 1; take the line out"
    ]
    first, second, _ = losses.read_text().splitlines()
    losses.write_text(json.dumps({**json.loads(first), "misalignment": None}) + "\n" + second + "\n")
    said = lengthwise(*command)
    assert (said.status, said.out) == (2, "")
    assert said.err[0].startswith(f"lengthwise: line 1 of {losses} is damaged: its 'misalignment' is null")
    for kept, told in (("", "holds none of 2 steps"), (first + "\n" + second[:9], "ends at step 1 of 2")):
        losses.write_text(kept)
        why = f"{losses} is damaged: it {told}; restore it, or take it away: the model is whole without it"
        for flags in ((), ("--json",)):
            assert lengthwise(*command, *flags) == Said(2, "", [f"lengthwise: {why}"])
    losses.unlink()
    assert lengthwise(*command) == Said(0, last + "\n", [f"lengthwise: {losses} is gone, and with it the losses"])


@pytest.mark.filterwarnings("default")
def test_an_interrupted_run_says_from_where_it_goes_on(
    lengthwise: Callable[..., Said], model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    command = ("train", model, "--data", text, "--out", out, *FLAGS, "--steps", 5, "--save-every", 2, "--adjustment", "clex")
    interrupted = "lengthwise: interrupted; nothing half-written was left behind, give the same command again"
    for step, told in (
        (1, f"no checkpoint is in {out} yet; the same command begins again at step 1 of 5"),
        (3, f"what was finished is in {out}; the same command goes on after step 2 of 5"),
        (4, f"what was finished is in {out}; the same command goes on after step 4 of 5"),
    ):
        with monkeypatch.context() as patched:
            killed_at(step, patched)
            said = lengthwise(*command)
        assert said.status == 130
        assert said.err[-2:] == [f"lengthwise: {told}", interrupted]
    # A checkpoint that what CLEX learnt is not beside is none
    (out / "checkpoints" / "checkpoint-4" / "clex.safetensors").unlink()
    with monkeypatch.context() as patched:
        killed_at(2, patched)
        assert "goes on after step 2 of 5" in lengthwise(*command).err[-2]
        patched.setattr(importlib.import_module("lengthwise.training.train"), "load", interrupt)
        assert lengthwise(*command, "--out", tmp_path / "new").err == [interrupted]


def test_a_run_that_is_going_on_is_not_joined(lengthwise: Callable[..., Said], model: Path, text: Path, tmp_path: Path) -> None:
    from lengthwise.records.locks import claim

    (tmp_path / "run").mkdir()
    with claim(tmp_path / "run" / ".claim-training"):
        said = lengthwise("train", model, "--data", text, "--out", tmp_path / "run", *FLAGS)
    assert (said.status, len(said.err)) == (2, 1)
    assert "another process is training in" in said.err[0]
