"""transformers' Trainer on L* = L_train + alpha L_misalign.

    trainer = lengthwise.MisalignmentTrainer(model=model, args=arguments, train_dataset=rows, train_length=4096, alpha=0.1)
    trainer.train(resume_from_checkpoint=True)

Rows hold at least L + the largest e tokens (`trainer.regulariser.tokens`). A step's loss is the mean over all targets and all
overlaps of its whole batch, accumulated parts and processes together, so it does not depend on how the batch is split. e is
drawn once a step, from the seed and the step's number: every process draws the same, and so does a run killed and resumed.
Logs carry `cross_entropy` and `misalignment`, the mean L_SCE or KL, beside the loss. Evaluation takes the middle of e's range,
so that it compares.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from lengthwise.errors import BadInput, require
from lengthwise.training.output_alignment.regulariser import Regulariser, TwoReadings
from lengthwise.training.output_alignment.views import Views, extra_range

if importlib.util.find_spec("accelerate") is None:
    raise BadInput("training needs the package accelerate; pip install 'lengthwise[train]'")


class MisalignmentTrainer(Trainer):  # type: ignore[misc]
    """transformers' Trainer of a causal model, whose loss is the model's own plus `alpha` times the misalignment."""

    # What compute_loss returns is a share of a mean over all accumulated parts; older transformers ask the model's
    # model_accepts_loss_kwargs for that
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        *args: Any,
        train_length: int,
        alpha: float = 0.1,
        sampling: str = "1..L/2",
        overlap: str = "whole",
        compare: str = "sce",
        **kwargs: Any,
    ) -> None:
        """`train_length` (L) to `compare` are what the options of `lengthwise train` are; all else is Trainer's."""
        self.regulariser = Regulariser(train_length, alpha, sampling, overlap, compare)
        super().__init__(*args, **kwargs)
        plain = self.compute_loss_func is None and self.label_smoother is None
        require(plain, "MisalignmentTrainer has its own loss; leave compute_loss_func and label_smoothing_factor out")
        # BERT's kind has the head of a language model, too, and would see the tokens that it should tell
        decoder = not self.model.config.is_encoder_decoder and self.model.can_generate()
        require(decoder, f"{type(self.model).__name__} reads its input with an encoder; give a causal language model")
        self.model_accepts_loss_kwargs = True
        self._views: Views | None = None
        self._means = torch.zeros(2)
        self._steps = 0

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | None]:
        """The parts of one step's batch on this process, and what all processes' parts have to average over."""
        if self.state.global_step >= self.state.max_steps:
            # Stopped after its last checkpoint; transformers looks for the end after a step only
            self.control.should_training_stop = True
            return [], None
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        self._views = self.regulariser.drawn(seed, self.state.global_step)
        self._steps += 1
        counts = torch.stack([self._readings(batch, self._views).counts for batch in batches]).sum(0)
        return batches, self.accelerator.reduce(counts.to(device), "sum")

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Tensor | None = None
    ) -> Any:
        if num_items_in_batch is None or self._views is None:
            raise BadInput("MisalignmentTrainer's loss is a share of a whole step's; call train() or evaluate()")
        readings = self._readings(inputs, self._views)
        outputs = model(**readings.inputs)
        loss, means = readings.loss(outputs.logits, self.regulariser, num_items_in_batch)
        self._means = self._means.to(means.device) + means
        # Gradients are averaged over processes, where these shares have to add up
        loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Tensor, None, None]:
        low, high = extra_range(self.regulariser.sampling, self.regulariser.train_length)
        readings = self._readings(self._prepare_inputs(inputs), self.regulariser.views((low + high) // 2))
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, _ = readings.loss(model(**readings.inputs).logits, self.regulariser, readings.counts)
        return loss, None, None

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Trainer calls it on every process, and with a `loss` only for steps of training."""
        if "loss" in logs and self._steps:
            means = (self.accelerator.reduce(self._means.to(self.args.device), "sum") / self._steps).tolist()
            logs = {**logs, "cross_entropy": means[0]}
            if self.regulariser.alpha > 0:
                logs["misalignment"] = means[1]
            self._means, self._steps = torch.zeros(2), 0
        super().log(logs, start_time)

    def _readings(self, batch: dict[str, Any], views: Views) -> TwoReadings:
        tokens, needed = batch["input_ids"].shape[1], self.regulariser.tokens
        reads = f"training at length {views.length} with e from {self.regulariser.sampling} reads up to {needed}"
        require(tokens >= needed, f"rows of {tokens} tokens are too short: {reads}; give rows of {needed} tokens")
        return TwoReadings.of(batch, views)
