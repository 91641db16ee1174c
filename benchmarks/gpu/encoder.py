"""Whole T5 encoders of the Flan-T5 shapes, random weights, read and trained, against transformers' own attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

import torch
import transformers
from torch import Tensor

import lengthwise
from benchmarks.gpu.implementations import Setting
from benchmarks.gpu.results import Results
from benchmarks.gpu.sizes import SHAPES
from benchmarks.gpu.timing import free, peak, repeated

IMPLEMENTATIONS = ("lengthwise", "transformers_sdpa", "transformers_eager")
METHOD = "log"  # a temperature, so that no layer may take a way without one
TOKENS = 8192  # of a training step at least
QUERIES = 3.0  # times T5's initial queries: attention as sharp as a trained model's, which calibration can bring back


@lru_cache(maxsize=1)
def built(name: str, device: torch.device, dtype: torch.dtype) -> Any:
    """The encoder, made where it will run; the last one is kept."""
    shape = SHAPES[name]
    config = transformers.T5Config(
        vocab_size=shape.words,
        d_model=shape.width,
        d_kv=shape.key_size,
        d_ff=shape.inner,
        num_layers=shape.layers,
        num_heads=shape.heads,
        n_positions=shape.train_length,
        feed_forward_proj="gated-gelu",
    )
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = transformers.T5EncoderModel(config).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(before)
    for block in model.encoder.block:
        block.layer[0].SelfAttention.q.weight.mul_(QUERIES)
    torch.nn.init.normal_(model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight)
    return model


def encoder(name: str, length: int, implementation: str, setting: Setting, results: Results) -> None:
    """One record: seconds of a forward of one sequence and what it needs above the weights."""
    operations = SHAPES[name].operations(length)
    _record("encoder", name, length, implementation, _forward, operations, setting, results)


def training(name: str, length: int, implementation: str, setting: Setting, results: Results) -> None:
    """One record: seconds of a forward and a backward of some sequences, with T5's dropout, gradients in the memory."""
    rows = rows_of(length)
    model, operations = built(name, setting.device, setting.dtype), rows * SHAPES[name].operations(length, training=True)
    model.train().requires_grad_()
    try:
        step = partial(_step, rows=rows)
        _record("training", name, length, implementation, step, operations, setting, results, rows=rows)
    finally:
        model.eval().requires_grad_(False)
        model.zero_grad()
        free(setting.device)


def rows_of(length: int) -> int:
    """Sequences of a step, so many that a GPU is not kept waiting."""
    return max(1, TOKENS // length)


def _record(
    what: str,
    name: str,
    length: int,
    implementation: str,
    work: Callable[[Any, int], None],
    operations: float,
    setting: Setting,
    results: Results,
    **more: int,
) -> None:
    model, device = built(name, setting.device, setting.dtype), setting.device
    with results.attempt(what, implementation, name, length), _under(model, implementation, setting):
        # Loads what every length needs
        work(model, min(length, 2 * SHAPES[name].train_length))
        timed, extra = peak(lambda: repeated(lambda: work(model, length), device), device)
        tflops = operations / timed.seconds / 1e12
        found = {"seconds": timed.seconds, "tflops": tflops, "extra_gb": extra}
        results.add(what, implementation, name, length, **found, spread=timed.spread, rounds=timed.rounds, **more)
    free(device)


def longest(name: str, implementation: str, start: int, most: int, setting: Setting, results: Results) -> None:
    """Doubles the length until memory is out. All layers need the same memory, one after the other, so one layer is run."""
    model = built(name, setting.device, setting.dtype)
    blocks, length, fits, extra = model.encoder.block, start, 0, None
    model.encoder.block = blocks[:1]
    try:
        with _under(model, implementation, setting):
            while length <= most:
                _, extra = peak(lambda length=length: _forward(model, length), setting.device)
                fits, length = length, 2 * length
                free(setting.device)
        note = _beyond(most, extra, _memory(setting.device))
    except torch.OutOfMemoryError:
        note = f"out of memory at {length:,}"
    finally:
        model.encoder.block = blocks
        free(setting.device)
    results.add("longest", implementation, name, fits, extra_gb=extra, note=note)


def _beyond(most: int, extra: float | None, there: float) -> str:
    """Why no length beyond `most`, which needs `extra` gigabytes, was tried."""
    if extra is not None and 2 * extra > there:
        return f"takes {extra:.0f} GB above the weights, twice as much is not there"
    return f"at least; not tried beyond {most:,}"


def _memory(device: torch.device) -> float:
    """Gigabytes of the device."""
    return torch.cuda.get_device_properties(device).total_memory / 1e9 if device.type == "cuda" else math.inf


def _under(model: Any, implementation: str, setting: Setting) -> AbstractContextManager[object]:
    if implementation == "lengthwise":
        # Named, so that it runs through the kernel or not at all
        return lengthwise.extend(model, METHOD, implementation=setting.implementation)
    model.set_attn_implementation(implementation.removeprefix("transformers_"))
    return nullcontext()


def _forward(model: Any, length: int) -> None:
    with torch.inference_mode():
        model(input_ids=_ids(model, 1, length))


def _step(model: Any, length: int, rows: int) -> None:
    model.zero_grad()
    model(input_ids=_ids(model, rows, length)).last_hidden_state.float().square().mean().backward()


def _ids(model: Any, rows: int, length: int) -> Tensor:
    return torch.randint(3, model.config.vocab_size, (rows, length), device=model.device)
