"""MisalignmentTrainer: the same loss however a batch is split, the same curve after a kill, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

import lengthwise as lw
from lengthwise.training.output_alignment.regulariser import Regulariser, regularised_loss
from lengthwise.training.output_alignment.views import drawn_extra
from tests.conftest import make, tokens
from tests.training.output_alignment.training import LENGTH, STEPS, decided, found, in_two_processes, rows, trainer_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Three steps of one batch of 8."""
    trainer = trainer_of(tmp_path_factory.mktemp("whole"))
    trainer.train()
    return found(trainer)


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, expected in other.items():
        assert one[name] == pytest.approx(expected, rel=1e-5), name


def test_the_first_loss_is_that_of_the_plain_function(whole: dict[str, Any], tmp_path: Path) -> None:
    batch = next(iter(trainer_of(tmp_path).get_train_dataloader()))
    extra, model = drawn_extra("1..L/2", LENGTH, 7, 0), decided()

    def loss_of(rows: slice, alpha: float) -> float:
        some = {name: column[rows] for name, column in batch.items()}
        with torch.no_grad():
            return float(regularised_loss(model, some, Regulariser(LENGTH, alpha), extra))

    loss, plain = (loss_of(slice(8), alpha) for alpha in (0.3, 0.0))
    assert whole["loss"][0] == pytest.approx(loss, rel=1e-5)
    # Parts that count less weigh less: the mean of two parts' own losses is another number
    assert abs((loss_of(slice(4), 0.3) + loss_of(slice(4, 8), 0.3)) / 2 - loss) > 1e-4 * loss
    assert whole["cross_entropy"][0] == pytest.approx(plain, rel=1e-5)
    assert whole["misalignment"][0] == pytest.approx((loss - plain) / 0.3, rel=1e-4)
    assert whole["loss"] == pytest.approx(
        [c + 0.3 * m for c, m in zip(whole["cross_entropy"], whole["misalignment"], strict=True)], abs=1e-4
    )
    assert len(set(whole["loss"])) == STEPS


@pytest.mark.parametrize(("batch", "parts"), [(4, 2), (2, 4), (1, 8)])
def test_accumulated_parts_give_the_loss_of_the_whole(whole: dict[str, Any], tmp_path: Path, batch: int, parts: int) -> None:
    trainer = trainer_of(tmp_path, per_device_train_batch_size=batch, gradient_accumulation_steps=parts)
    trainer.train()
    assert_same(found(trainer), whole)


def test_compared_by_kl_parts_give_the_loss_of_the_whole_too(whole: dict[str, Any], tmp_path: Path) -> None:
    runs = []
    for batch, parts in ((8, 1), (4, 2)):
        options = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": parts}
        trainer = trainer_of(tmp_path, compare="kl", alpha=3.0, **options)
        trainer.train()
        runs.append(found(trainer))
    assert_same(runs[1], runs[0])
    # Rows and weights before the first step are the same, and L_SCE is the larger by two entropies
    assert runs[0]["cross_entropy"][0] == whole["cross_entropy"][0]
    assert 0 < runs[0]["misalignment"][0] < whole["misalignment"][0]
    batch = next(iter(trainer_of(tmp_path).get_train_dataloader()))
    with torch.no_grad():
        by_function = regularised_loss(
            decided(), batch, Regulariser(LENGTH, 3.0, compare="kl"), drawn_extra("1..L/2", LENGTH, 7, 0)
        )
    assert runs[0]["loss"][0] == pytest.approx(float(by_function), rel=1e-5)


def test_two_processes_give_the_loss_of_one(whole: dict[str, Any], tmp_path: Path) -> None:
    def train(rank: int) -> None:
        trainer = trainer_of(tmp_path, per_device_train_batch_size=4)
        trainer.train()
        result = {**found(trainer), "processes": trainer.accelerator.num_processes}
        trainer.accelerator.end_training()
        (tmp_path / f"found-{rank}.json").write_text(json.dumps(result))

    in_two_processes(train, tmp_path)
    for rank in range(2):
        result = json.loads((tmp_path / f"found-{rank}.json").read_text())
        assert result.pop("processes") == 2
        assert_same(result, whole)


class Killed(tf.TrainerCallback):
    """A kill after the fifth step, which has left no checkpoint."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 5:
            raise KeyboardInterrupt


def test_a_killed_run_resumes_to_the_same_curve(tmp_path: Path) -> None:
    """With dropout, two epochs, and parts of a batch: what a resumed run could get wrong."""

    def model() -> Any:
        fresh = decided()
        fresh.config.attention_dropout = 0.2
        for layer in fresh.model.layers:
            layer.self_attn.attention_dropout = 0.2
        return fresh

    options: dict[str, Any] = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3}
    options |= {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2}
    straight = trainer_of(tmp_path / "straight", model=model(), **options)
    straight.train()
    killed = trainer_of(tmp_path / "killed", model=model(), callbacks=[Killed()], **options)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["checkpoint-3"]
    resumed = trainer_of(tmp_path / "killed", model=model(), **options)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 6
    one, other = found(resumed), found(straight)
    assert len(one["loss"]) == len(set(one["loss"])) == 6
    assert one == other


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")
def test_mixed_precision_stays_near_float32(whole: dict[str, Any], tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, bf16=True)
    trainer.train()
    narrow = found(trainer)
    assert narrow["loss"] != whole["loss"]
    assert narrow["loss"] == pytest.approx(whole["loss"], rel=0.02)
    assert all(parameter.dtype == torch.float32 for parameter in trainer.model.parameters())


def test_one_e_a_step_moves_with_the_steps_and_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = lw.MisalignmentTrainer._readings
    monkeypatch.setattr(
        lw.MisalignmentTrainer, "_readings", lambda self, batch, views: (read.append(views.extra), real(self, batch, views))[1]
    )
    options: dict[str, Any] = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    trainer_of(tmp_path, data_seed=11, **options).train()
    # Each part is looked at twice, to count and to learn
    assert read == [drawn_extra("1..L/2", LENGTH, 11, step) for step in range(STEPS) for _ in range(4)]


@pytest.mark.parametrize("compare", ["sce", "kl"])
def test_evaluation_is_the_plain_function_at_the_middle_of_the_range(tmp_path: Path, compare: str) -> None:
    data = [{"input_ids": one["input_ids"]} for one in rows(4)]
    trainer = trainer_of(tmp_path, eval_dataset=data, per_device_eval_batch_size=2, compare=compare)
    model = decided()
    with torch.no_grad():
        batch = {"input_ids": torch.tensor([one["input_ids"] for one in data])}
        regulariser = Regulariser(LENGTH, 0.3, compare=compare)
        expected = float(regularised_loss(model, batch, regulariser, (1 + LENGTH // 2) // 2))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


def test_training_brings_the_readings_together(tmp_path: Path) -> None:
    apart = {}
    for alpha in (0.0, 1.0):
        trainer = trainer_of(tmp_path, alpha=alpha, max_steps=12, learning_rate=0.01)
        trainer.train()
        assert all(("misalignment" in line) == (alpha > 0) for line in trainer.state.log_history if "loss" in line)
        apart[alpha] = lw.misalignment(trainer.model, tokens(400)[0], train_length=LENGTH, pairs=8, show_progress=False).kl
    assert apart[1.0] < 0.7 * apart[0.0]


def test_training_without_accelerate_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lengthwise.training.output_alignment.trainer", raising=False)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "accelerate" else real(name, *rest))
    with pytest.raises(lw.BadInput, match=r"needs the package accelerate; pip install 'lengthwise\[train\]'"):
        _ = lw.MisalignmentTrainer
    with pytest.raises(AttributeError, match="has no attribute 'MisalignmentTrainers'"):
        _ = lw.MisalignmentTrainers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1}, "alpha must be a number from 0 on, not -1"),
        ({"compare": "js"}, "compare must be one of sce, kl, not 'js'"),
        ({"train_length": 18}, "rows of 24 tokens are too short: training at length 18 .* give rows of 27 tokens"),
        ({"label_smoothing_factor": 0.1}, "its own loss; leave compute_loss_func and label_smoothing_factor out"),
        ({"model": "t5"}, "T5ForConditionalGeneration reads its input with an encoder"),
        ({"model": "bert"}, "BertForMaskedLM reads its input with an encoder; give a causal language model"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    options = {key: make(value) if key == "model" else value for key, value in options.items()}
    with pytest.raises(lw.BadInput, match=message):
        trainer_of(tmp_path, **options).train()
