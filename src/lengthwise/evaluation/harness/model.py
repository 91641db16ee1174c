"""A model of lm-evaluation-harness that lengthwise loads and extends.

It reads what `lengthwise.models.load` reads and keeps one method in force while the harness asks; afterwards the model is what
it was. Inputs are not cut at the training length, as the harness would by itself: only `max_length` cuts them, on the left.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from torch import Tensor, nn

from lengthwise.errors import BadInput, did_you_mean, require
from lengthwise.evaluation.harness import MODEL
from lengthwise.methods.base import follows_length, method_name
from lengthwise.methods.spec import check_spec, methods_of
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.extend import extend
from lengthwise.models.layer import active_slots
from lengthwise.models.load import load
from lengthwise.models.suitability import check_can_answer

UNCUT = 2**30  # more tokens than any input has: nothing is cut
# Options of the harness that we hand on; it would drop the rest without a word
OPTIONS = (
    "max_batch_size add_bos_token prefix_token_id softmax_dtype mixed_precision_dtype logits_cache think_end_token "
    "enable_thinking chat_template_args"
).split()


def _is_shown(record: logging.LogRecord) -> bool:
    """Whether to show a line of the harness's log: not those about a loaded model, which we handed over and not the user."""
    line = record.getMessage()
    return "already-initialized model" not in line and "`pretrained` model kwarg is not of type `str`" not in line


@register_model(MODEL)
class LengthwiseLM(HFLM):  # type: ignore[misc]
    """The harness's model `lengthwise`: a model under one method."""

    def __init__(
        self,
        pretrained: str | nn.Module = "embedded",
        method: object = "none",
        train_length: int | None = None,
        force: bool = False,
        dtype: str = "auto",
        device: str | None = None,
        tokenizer: Any = None,
        max_length: int | None = None,
        batch_size: int | str = 1,
        **options: Any,
    ) -> None:
        """`pretrained` is a directory, a hub name, a GGUF file, `embedded`, or a loaded model with its `tokenizer`."""
        _check_options(options, batch_size, max_length)
        if isinstance(pretrained, str):
            require(tokenizer is None, f"a tokenizer goes with a loaded model; {pretrained} brings its own")
            if isinstance(method, str):
                check_spec(method)
            # cuda:0 is what the harness says where nobody said anything
            unasked = device == "cuda:0" and not torch.cuda.is_available()
            model, tokenizer = load(pretrained, dtype, None if unasked else device)
        else:
            require(tokenizer is not None, "a loaded model needs its tokenizer beside it: tokenizer=...")
            model = pretrained
        check_can_answer(model)
        # Files that a spec names are read once: they may change while the harness asks
        read = methods_of(method, anatomy_of(model, train_length).facts) if isinstance(method, str) else method
        self._settings: dict[str, Any] = {"method": read, "train_length": train_length, "force": force}
        # A bad method is refused now, not after the data sets have been read
        with extend(model, **self._settings):
            _check_batches(model, batch_size)
        log = logging.getLogger(HFLM.__module__)
        log.addFilter(_is_shown)
        try:
            super().__init__(
                pretrained=model,
                tokenizer=tokenizer,
                backend="seq2seq" if model.config.is_encoder_decoder else "causal",
                max_length=max_length or UNCUT,
                batch_size=batch_size,
                **options,
            )
        finally:
            log.removeFilter(_is_shown)

    def loglikelihood(self, *requests: Any, **settings: Any) -> list[tuple[float, bool]]:
        with extend(self.model, **self._settings):
            return list(super().loglikelihood(*requests, **settings))

    def loglikelihood_rolling(self, *requests: Any, **settings: Any) -> list[float]:
        with extend(self.model, **self._settings):
            return list(super().loglikelihood_rolling(*requests, **settings))

    def generate_until(self, *requests: Any, **settings: Any) -> list[str]:
        with extend(self.model, **self._settings):
            return list(super().generate_until(*requests, **settings))

    def _model_generate(self, context: Tensor, max_length: int, stop: list[str], **settings: Any) -> Tensor:
        # The harness adds the input's length, which is no part of what an encoder-decoder writes; its start token is
        limit = max_length - context.shape[1] + 1 if self.backend == "seq2seq" else max_length
        written: Tensor = super()._model_generate(context, limit, stop, **settings)
        return written


def _check_batches(model: nn.Module, batch_size: int | str) -> None:
    """Refuse batches where frequencies follow the length: the harness pads without a mask, so all rows look equally long."""
    slots = active_slots(anatomy_of(model))
    rotation = None if slots is None else slots.rotation
    require(
        str(batch_size) == "1" or not follows_length(rotation),
        f"{method_name(rotation)} has frequencies for the length of its input, which the harness does not tell of inputs that "
        "it reads together; give batch_size=1",
    )


def _check_options(options: dict[str, Any], batch_size: int | str, max_length: int | None) -> None:
    for name in options:
        if name not in OPTIONS:
            ours = ["pretrained", "method", "train_length", "force", "dtype", "device", "max_length", "batch_size", *OPTIONS]
            hint = did_you_mean(name, ours, f"it takes {', '.join(ours)}")
            raise BadInput(f"the model {MODEL!r} takes no argument {name!r}; {hint}")
    tries = str(batch_size).startswith("auto") and max_length is None
    require(
        not tries, "batch_size=auto tries batches of the longest inputs; say how long they are (max_length=N in --model_args)"
    )
