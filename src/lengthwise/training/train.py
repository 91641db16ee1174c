"""Fine-tune a causal language model with the misalignment of its outputs in the loss, under a method that extends it.

    trained = lengthwise.train("stories15M", out="runs/x", data=["book.txt"], adjustment="interpolation:factor=2", alpha=0.1)
    trained.model, trained.method                     # the checkpoint, and the spec to use it with

The method is in force through `extend` while the model learns; training/settings.py lists all settings. The same call goes on
where a killed one was and ends in the same losses; a directory of another run is refused. `accelerate launch -m lengthwise
train` spreads the rows of a step over processes.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import StackDataset

from lengthwise.common.files import save_whole, write_whole, writing
from lengthwise.common.plugins import code_of
from lengthwise.common.progress import progress
from lengthwise.errors import BadInput, require
from lengthwise.methods import weights
from lengthwise.methods.base import file_contents_of
from lengthwise.models.anatomy import Anatomy, anatomy_of, unwrapped, vocabulary
from lengthwise.models.extend import extend
from lengthwise.models.fingerprint import model_fingerprint, versions
from lengthwise.models.load import load
from lengthwise.records.locks import claim
from lengthwise.training.adjustment import LEARNT, Adjustment, TrainingMethods, adjustment_of, methods_for, prepared, spec_with
from lengthwise.training.checkpoint import readable
from lengthwise.training.directory import CLAIM, FORMAT, TrainingDirectory, learnt_file, step_of
from lengthwise.training.lora import merged, quantised
from lengthwise.training.rows import check_files, digest, rows_of
from lengthwise.training.settings import Settings, settings_of

# Settings that may differ when a run is gone on with
NOT_COMPARED = ("model", "out", "data", "dataset", "dataset_config", "split", "text_field", "device", "quantise")


@dataclass(frozen=True)
class Trained:
    """The result of a training run."""

    model: str  # directory of the checkpoint
    method: str  # spec to use it with
    losses: list[dict[str, Any]]  # one entry a step: step, loss, cross_entropy, misalignment, grad_norm, learning_rate


@dataclass(frozen=True)
class TrainingRun:
    """One run, checked and ready to go."""

    settings: Settings  # with the length that is trained at
    model: Any
    tokenizer: Any
    anatomy: Anatomy
    adjustment: Adjustment
    methods: TrainingMethods
    directory: TrainingDirectory
    arguments: Any  # transformers' TrainingArguments


def train(model: str, out: str | Path, *, show_progress: bool = True, callbacks: Sequence[Any] = (), **options: Any) -> Trained:
    """Train and save; `options` are the fields of training/settings.py, `callbacks` transformers' TrainerCallbacks."""
    settings = settings_of({"model": model, "out": str(out), **options})
    return train_with(settings, show_progress=show_progress, callbacks=callbacks)


def train_with(settings: Settings, *, show_progress: bool = True, callbacks: Sequence[Any] = ()) -> Trained:
    """Train with settings that were read already."""
    for package in ("accelerate", "peft"):
        if importlib.util.find_spec(package) is None:
            raise BadInput(f"training needs the package {package}; pip install 'lengthwise[train]'")
    run, rows = _prepared_run(settings)
    with ExitStack() as stack:
        if run.arguments.process_index == 0:
            run.directory.agree(_config(run, rows))
            ours = stack.enter_context(claim(run.directory.path / CLAIM))
            require(ours, f"another process is training in {settings.out}; wait for it, or give another --out")
            run.directory.remove_unfinished()
        if not run.directory.method.exists():
            run.directory.refuse_copies()
            with writing(run.directory.path):
                _train(run, rows, show_progress and run.arguments.process_index == 0, callbacks)
    losses = run.directory.losses_of_all(run.methods.learnt_name)
    return Trained(str(run.directory.model), run.directory.method.read_text().strip(), losses)


def _prepared_run(settings: Settings) -> tuple[TrainingRun, Tensor]:
    """The run and its rows; everything that can be refused is refused here, before anything is written."""
    require(settings.device != "cuda" or torch.cuda.is_available(), "--device cuda: there is no CUDA device here; leave it out")
    gguf = settings.model.endswith(".gguf")
    require(not gguf, f"{settings.model} is a GGUF file, made to be read only; give the model as a directory of safetensors")
    check_files(settings.data)
    model, tokenizer = load(settings.model, "float32", "cpu")
    anatomy = anatomy_of(model)
    able = anatomy.causal and not model.config.is_encoder_decoder and model.get_output_embeddings() is not None
    require(able, f"training takes a causal language model, and {settings.model} is a {type(model).__name__}; give another")
    settings = replace(settings, train_length=settings.train_length or anatomy.train_length)
    length = settings.train_length or 0
    adjustment = adjustment_of(settings, anatomy.train_length, length)
    methods = methods_for(adjustment, settings, anatomy, length)
    with extend(model, methods.installed):
        pass
    arguments = _arguments(settings)
    most = settings.steps * settings.batch * settings.accumulation * arguments.world_size
    words = vocabulary(model)
    rows = rows_of(settings, tokenizer, words, settings.regulariser(length).tokens, most)
    directory = TrainingDirectory(Path(settings.out))
    return TrainingRun(settings, model, tokenizer, anatomy, adjustment, methods, directory, arguments), rows


def _arguments(settings: Settings) -> Any:
    from transformers import TrainingArguments

    return TrainingArguments(
        output_dir=str(TrainingDirectory(Path(settings.out)).checkpoints),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=settings.warmup,
        bf16=settings.dtype == "bfloat16",
        use_cpu=settings.device == "cpu" or not torch.cuda.is_available(),
        seed=settings.seed,
        logging_steps=1,
        # A loss that is no number would be told as 0
        logging_nan_inf_filter=False,
        save_steps=settings.save_every,
        save_total_limit=2,
        # TensorBoard is told by a callback of its own, because transformers would choose another directory for every start
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )


def _config(run: TrainingRun, rows: Tensor) -> dict[str, Any]:
    chosen = {name: value for name, value in asdict(run.settings).items() if name not in NOT_COMPARED}
    resolved = {**asdict(run.adjustment), "processes": run.arguments.world_size}
    from_files: list[object] = [method for method in (run.methods.learnt, run.methods.alignment) if method is not None]
    from_files += [method for method in run.methods.installed if code_of(method) is not None and method not in from_files]
    return {
        "format": FORMAT,
        "model": {**model_fingerprint(run.anatomy), "name": run.settings.model},
        "settings": {**chosen, **resolved},
        "rows": {"count": len(rows), "digest": digest(rows)},
        "documents": file_contents_of(from_files),
        "asked": asdict(run.settings),
        "made_with": versions(),
    }


def _train(run: TrainingRun, rows: Tensor, shown: bool, callbacks: Sequence[Any]) -> None:
    from lengthwise.training.output_alignment.trainer import MisalignmentTrainer

    settings, learnt, learnt_name = run.settings, run.methods.learnt, run.methods.learnt_name
    checkpoint = run.directory.last_checkpoint(learnt_name)
    if checkpoint is not None and learnt is not None and learnt_name is not None:
        weights.load(learnt, checkpoint / learnt_file(learnt_name), f"weights of {learnt_name}", "")
    caches = getattr(run.model.config, "use_cache", None)
    base = quantised(settings.model, run.arguments) if run.adjustment.quantised else run.model
    model = prepared(base, run.adjustment, run.methods, settings.seed)
    trainer = MisalignmentTrainer(
        model=model,
        args=run.arguments,
        train_dataset=StackDataset(input_ids=rows),  # type: ignore[arg-type]
        callbacks=list(callbacks),
        **asdict(settings.regulariser(settings.train_length or 0)),
    )
    if checkpoint is None and run.arguments.process_index == 0 and run.directory.read_losses():
        warnings.warn(f"no checkpoint is in {settings.out} yet: training starts over at step 1", stacklevel=4)
    # LoRA gives parameters other names, and an alignment was found to fit before that
    watched, whole = _with_callbacks(trainer, run, checkpoint, shown), readable(checkpoint, trainer)
    with watched, extend(model, run.methods.installed, force=True), whole:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    # Trainer has switched it off, and would have it saved so
    run.model.config.use_cache = caches
    if run.arguments.process_index == 0:
        _save(model, run)
    accelerator = trainer.accelerator
    accelerator.wait_for_everyone()
    if run.arguments.world_size > 1:
        # What wraps the model goes before the processes' group: its last holder waits, with the interpreter held, for a thread
        # that may wait for the interpreter
        del trainer, watched
        accelerator.free_memory()
    accelerator.end_training()


@contextmanager
def _with_callbacks(trainer: Any, run: TrainingRun, checkpoint: Path | None, shown: bool) -> Iterator[None]:
    from transformers import PrinterCallback
    from transformers.integrations import TensorBoardCallback

    from lengthwise.training.callbacks import LossesCallback, MethodCallback

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(MethodCallback(run.methods))
    with progress("training", run.settings.steps, shown) as tick:
        if run.arguments.process_index == 0:
            trainer.add_callback(LossesCallback(run.directory, tick))
            if importlib.util.find_spec("tensorboard") is not None:
                from torch.utils.tensorboard import SummaryWriter

                done = 0 if checkpoint is None else step_of(checkpoint)
                # Steps after the checkpoint are taken, and shown, again
                writer = SummaryWriter(str(run.directory.tensorboard), purge_step=done + 1)
                trainer.add_callback(TensorBoardCallback(writer))
        yield


def _save(model: Any, run: TrainingRun) -> None:
    inner, methods, learnt = unwrapped(model), run.methods, None
    if methods.learnt is not None:
        delattr(inner, LEARNT)
    if run.adjustment.lora_rank:
        save_whole(run.directory.adapter, [model], overwrite=True)
        inner = merged(model, run.directory.adapter, run.model if run.adjustment.quantised else None)
    if methods.learnt is not None and methods.learnt_name is not None:
        learnt = run.directory.path / learnt_file(methods.learnt_name)
        weights.save(methods.learnt, learnt)
    if (alignment := methods.alignment) is not None:
        fingerprint = {**model_fingerprint(anatomy_of(inner)), "name": str(run.directory.model)}
        before = {"trained_from": alignment.model, **alignment.provenance}
        replace(alignment, model=fingerprint, provenance=before).save(run.directory.alignment)
    spec = spec_with(run.adjustment.spec, learnt, None if alignment is None else run.directory.alignment)
    # What a run killed between this and its last word left there is written anew
    save_whole(run.directory.model, [inner, run.tokenizer], overwrite=True)
    write_whole(run.directory.method, spec + "\n")
