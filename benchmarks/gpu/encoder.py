"""Whole T5 encoders of the Flan-T5 shapes, random weights, one sequence, against transformers' own attention."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
import transformers

import lengthwise
from benchmarks.gpu.contestants import Setting
from benchmarks.gpu.results import Results
from benchmarks.gpu.sizes import SHAPES
from benchmarks.gpu.timing import free, peak, repeated

IMPLEMENTATIONS = ("lengthwise", "transformers_sdpa", "transformers_eager")
METHOD = "log"  # a temperature, so that no layer may take a way without one
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
    """One record: seconds of a forward and what it needs above the weights."""
    model, shape = built(name, setting.device, setting.dtype), SHAPES[name]
    with results.attempt("encoder", implementation, name, length), _under(model, implementation, setting):
        # Loads what every length needs
        _forward(model, min(length, 2 * shape.train_length))
        timed, extra = peak(lambda: repeated(lambda: _forward(model, length), setting.device), setting.device)
        tflops = shape.operations(length) / timed.seconds / 1e12
        more = {"spread": timed.spread, "rounds": timed.rounds}
        results.add("encoder", implementation, name, length, seconds=timed.seconds, tflops=tflops, extra_gb=extra, **more)
    free(setting.device)


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
    ids = torch.randint(3, model.config.vocab_size, (1, length), device=model.device)
    with torch.inference_mode():
        model(input_ids=ids)
