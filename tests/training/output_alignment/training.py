"""Trains a tiny model for a few steps; used by test_trainer.py in its own process, and run by it as two processes.

    python -m tests.training.output_alignment.training FOLDER

Leaves FOLDER/found.json with the logged losses, how far the weights moved, and whether the trainer was imported before it was
asked for. The second process is a fork of the first, because each start of torch costs seconds; they are told of each other as
`accelerate launch` and `torchrun` tell the processes they start.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import torch
import transformers as tf

import lengthwise as lw
from tests.conftest import make, tokens

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


def main() -> None:
    torch.set_num_threads(1)
    folder, early = Path(sys.argv[1]), [name for name in ("transformers.trainer", "peft", "datasets") if name in sys.modules]
    os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    child = os.fork()
    rank = "0" if child else "1"
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
    trainer = trainer_of(folder, per_device_train_batch_size=4)
    trainer.train()
    result = {**found(trainer), "processes": trainer.accelerator.num_processes, "early": early}
    trainer.accelerator.end_training()
    if not child:
        # A fork has not the threads it was forked from, and to end in order would wait for them now and then
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    (folder / "found.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
