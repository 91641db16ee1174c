"""Trainings killed (kill -9) at random moments inside a step, inside saving a checkpoint and inside saving the model."""

from __future__ import annotations

import importlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.common.text import shipped_prose
from lengthwise.training.callbacks import LossesCallback
from lengthwise.training.output_alignment.trainer import MisalignmentTrainer
from tests.conftest import TRAIN_LENGTH, make
from tests.helpers.forking import finished, forked

STEPS, KILLS = 6, 40


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[[str, Callable[[], object]], None]]:
    """Trains into a folder, and calls a function as each step begins, each checkpoint is saved, and the model in the end."""
    make("llama").save_pretrained(tmp_path / "model")
    ByT5Tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "prose.txt").write_text(shipped_prose()[:4000])
    options: dict[str, Any] = {
        "adjustment": "clex",
        "lora_rank": 4,
        "train_length": 2 * TRAIN_LENGTH,
        "steps": STEPS,
        "batch": 2,
    }
    options |= {"save_every": 2, "warmup": 1, "learning_rate": 0.01, "device": "cpu", "show_progress": False}

    def train(out: str, moment: Callable[[], object]) -> None:
        with pytest.MonkeyPatch.context() as patched:
            for owner, name in (
                (LossesCallback, "on_step_begin"),
                (MisalignmentTrainer, "_save_checkpoint"),
                (importlib.import_module("lengthwise.training.train"), "_save"),
            ):
                patched.setattr(owner, name, announced(getattr(owner, name), moment))
            lw.train(str(tmp_path / "model"), tmp_path / out, data=[str(tmp_path / "prose.txt")], **options)

    threads = torch.get_num_threads()
    # As in the forks
    torch.set_num_threads(1)
    yield train
    torch.set_num_threads(threads)


def announced(real: Callable[..., Any], moment: Callable[[], object]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        moment()
        return real(*arguments, **options)

    return call


def killed(train: Callable[[Callable[[], object]], None], nth: int, delay: float) -> bool:
    """Train in another process and kill it `delay` seconds after the `nth` moment; False when it ended before."""
    reading, writing = os.pipe()
    pid = forked(lambda: train(lambda: os.write(writing, b".")))
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as moments:
        if all(moments.read(1) for _ in range(nth)):
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)
        return not finished(pid)


@pytest.mark.filterwarnings("ignore:no checkpoint is in:UserWarning")
@pytest.mark.sweep
def test_trainings_killed_at_random_moments_end_as_an_undisturbed_one(
    command: Callable[[str, Callable[[], object]], None], tmp_path: Path
) -> None:
    randomness, done, ended, unfinished = random.Random(0), 0, 0, True
    moments: list[int] = []
    # In this process: what is imported late is imported before the forks, and once
    command("whole", lambda: moments.append(1))
    assert len(moments) == STEPS + STEPS // 2 + 1
    while done < KILLS or unfinished:
        # Fewer moments are left from kill to kill, until one comes too late, and another run begins
        nth = randomness.randint(1, 5) if done < KILLS else len(moments) + 1
        out = tmp_path / f"killed-{ended}"
        unfinished = killed(partial(command, out.name), nth, randomness.uniform(0.0, 0.05))
        if unfinished:
            done += 1
        else:
            ended += 1
            assert_same(out, tmp_path / "whole")


def assert_same(out: Path, whole: Path) -> None:
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in whole.iterdir())
    assert (out / "losses.jsonl").read_text() == (whole / "losses.jsonl").read_text()
    assert len((out / "losses.jsonl").read_text().splitlines()) == STEPS
    for name in ("model/model.safetensors", "adapter/adapter_model.safetensors", "clex.safetensors"):
        weights, expected = load_file(out / name), load_file(whole / name)
        assert weights.keys() == expected.keys()
        assert all(weights[key].equal(expected[key]) for key in expected)
