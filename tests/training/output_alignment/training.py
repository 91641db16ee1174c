"""Trains a tiny model for a few steps, in one process or in two."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import transformers as tf

import lengthwise as lw
from tests.conftest import make, tokens
from tests.helpers.forking import finished, forked

LENGTH, STEPS, ROWS = 16, 3, 24
OWN = ("train_length", "alpha", "sampling", "overlap", "compare", "eval_dataset")


def decided() -> Any:
    """A tiny model that is surer of some words than of others, so that rows differ in their losses."""
    model = make("llama").train()
    model.lm_head.weight.data *= 20
    return model


def rows(count: int = ROWS) -> list[dict[str, Any]]:
    """Of 24 tokens, of which rows have ever more real ones, so that parts of a batch differ in what they count."""
    ids = tokens(LENGTH + LENGTH // 2, batch=count, seed=3)
    real = [[int(at < 4 + 20 * row // (count - 1)) for at in range(ids.shape[1])] for row in range(count)]
    return [{"input_ids": one.tolist(), "attention_mask": mask} for one, mask in zip(ids, real, strict=True)]


def trainer_of(folder: Path, *, model: Any = None, trainer: Any = None, callbacks: Any = None, **options: Any) -> Any:
    """Options of MisalignmentTrainer and of TrainingArguments, over what suits a few steps on a CPU."""
    own = {key: options.pop(key) for key in OWN if key in options}
    arguments: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "max_steps": STEPS,
        "learning_rate": 0.005,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "seed": 7,
    }
    args = tf.TrainingArguments(**{**arguments, **options})
    own = {"train_length": LENGTH, "alpha": 0.3, **own}
    dataset = rows()
    model = decided() if model is None else model
    made = (trainer or lw.MisalignmentTrainer)(model=model, args=args, train_dataset=dataset, callbacks=callbacks, **own)
    made.remove_callback(tf.PrinterCallback)
    return made


def found(trainer: Any) -> dict[str, Any]:
    logged = [line for line in trainer.state.log_history if "loss" in line]
    fresh = decided().state_dict()
    moved = sum(float((weight - fresh[name]).abs().sum()) for name, weight in trainer.model.state_dict().items())
    names = ("loss", "cross_entropy", "misalignment", "grad_norm")
    return {"moved": moved, **{name: [line.get(name) for line in logged] for name in names}}


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def in_two_processes(work: Callable[[int], object], folder: Path) -> list[str]:
    """Do the work, which is given its rank, in two forks that are told of each other as `accelerate launch` and `torchrun` tell
    the processes they start; what each of them printed."""
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}

    def ranked(rank: int) -> object:
        os.environ |= {**meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        return work(rank)

    printed = [folder / f"printed-{rank}" for rank in range(2)]
    both = [forked(partial(ranked, rank), output=printed[rank]) for rank in range(2)]
    assert [finished(pid) for pid in both] == [True, True]
    return [path.read_text() for path in printed]
