"""What is done beside every step: a line of losses, a bar, and what a method is told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from safetensors.torch import load_file

from lengthwise.methods.positions.clex import Clex
from lengthwise.training.adjustment import TrainingMethods
from lengthwise.training.callbacks import LossesCallback, MethodCallback
from lengthwise.training.directory import TrainingDirectory
from lengthwise.training.stretched import StretchedClex

LOGS = {"loss": 3.5, "cross_entropy": 3.0, "misalignment": 5.0, "grad_norm": 1.0, "learning_rate": 0.01, "epoch": 0.5}


def state(step: int, steps: int = 40) -> Any:
    return SimpleNamespace(global_step=step, max_steps=steps, is_world_process_zero=True)


def test_losses_are_one_line_a_step_and_a_word_every_twentieth_of_the_run(tmp_path: Path) -> None:
    ticks: list[tuple[float, str | None]] = []
    directory = TrainingDirectory(tmp_path)
    callback = LossesCallback(directory, lambda done=1.0, label=None: ticks.append((done, label)))
    callback.on_train_begin(None, state(0), None)
    for step in (1, 2, 3, 40):
        callback.on_log(None, state(step), None, LOGS)
    # The last word of a trainer holds no loss of a step
    callback.on_log(None, state(40), None, {"train_runtime": 1.0})
    lines = [json.loads(line) for line in directory.losses.read_text().splitlines()]
    assert [list(line) for line in lines] == [["step", *list(LOGS)[:5]]] * 4
    words = "loss 3.5000, cross-entropy 3.0000, misalignment 5.0000"
    assert ticks == [(0, None), (1, None), (1, f"step 2 of 40: {words}"), (1, None), (1, f"step 40 of 40: {words}")]


def test_a_resumed_run_forgets_what_came_after_its_checkpoint_and_moves_the_bar(tmp_path: Path) -> None:
    ticks: list[float] = []
    directory = TrainingDirectory(tmp_path)
    callback = LossesCallback(directory, lambda done=1.0, label=None: ticks.append(done))
    callback.on_train_begin(None, state(0), None)
    for step in (1, 2, 3):
        callback.on_log(None, state(step), None, {"loss": 1.0, "cross_entropy": 1.0})
    callback.on_train_begin(None, state(2), None)
    assert [line["step"] for line in directory.read_losses()] == [1, 2]
    assert ticks == [0, 1, 1, 1, 2]


def test_a_method_that_draws_knows_the_step_and_what_it_learns_is_beside_every_checkpoint(tmp_path: Path) -> None:
    clex = Clex(train_length=32, rotary_size=8)
    stretched = StretchedClex(clex, 4.0, 16, seed=0)
    callback = MethodCallback(TrainingMethods([stretched], clex, "clex", stretched))
    callback.on_step_begin(None, state(7), None)
    assert stretched.step == 7
    (tmp_path / "checkpoint-7").mkdir()
    callback.on_save(SimpleNamespace(output_dir=str(tmp_path)), state(7), None)
    saved = load_file(tmp_path / "checkpoint-7" / "clex.safetensors")
    assert all(value.equal(saved[name]) for name, value in clex.state_dict().items())


def test_a_process_that_is_not_the_first_and_a_run_that_learns_no_method_save_nothing(tmp_path: Path) -> None:
    clex = Clex(train_length=32, rotary_size=8)
    other = SimpleNamespace(global_step=7, max_steps=9, is_world_process_zero=False)
    MethodCallback(TrainingMethods([], clex, "clex")).on_save(SimpleNamespace(output_dir=str(tmp_path)), other, None)
    MethodCallback(TrainingMethods([])).on_save(SimpleNamespace(output_dir=str(tmp_path)), state(7), None)
    MethodCallback(TrainingMethods([])).on_step_begin(None, state(7), None)
    assert [*tmp_path.iterdir()] == []
