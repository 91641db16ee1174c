"""What people run T5 on, and the ways to run it: a workload builds one model, every way runs a copy that shares its weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers as tf
from torch import Tensor

import lengthwise as lw

BASE = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12, "feed_forward_proj": "gated-gelu"}
SHAPES: dict[str, dict[str, Any]] = {
    "flan-t5-base": BASE,
    "flan-t5-large": {**BASE, "d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_heads": 16},
    "flan-t5-xl": {**BASE, "d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_heads": 32},
    "flan-t5-xxl": {**BASE, "d_model": 4096, "d_ff": 10240, "num_layers": 24, "num_heads": 64},
    "prot-t5": {"d_model": 1024, "d_kv": 128, "d_ff": 16384, "num_layers": 24, "num_heads": 32},
    "llama-1b": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 8192,
    },
}  # fmt: skip
TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True)
class Workload:
    """A model of some shape, and a batch for it."""

    shape: str
    rows: int
    length: int
    padded: bool = False  # rows of a quarter of the length and more, on the right
    training: bool = False  # forward and backward, with T5's dropout
    dtype: str = "bfloat16"

    @property
    def name(self) -> str:
        notes = [note for note, holds in (("training", self.training), ("padded", self.padded)) if holds]
        notes += [] if self.dtype == "bfloat16" else [self.dtype]
        return " ".join([self.shape, f"{self.rows}x{self.length}", *notes])


# In the order of what they were promised for
WORKLOADS = (
    Workload("flan-t5-base", 32, 512, padded=True),
    Workload("flan-t5-base", 16, 512, training=True),
    Workload("flan-t5-base", 8, 2048, padded=True),
    Workload("flan-t5-base", 1, 512),
    Workload("flan-t5-base", 128, 128, padded=True),
    Workload("prot-t5", 4, 1024),
    Workload("prot-t5", 1, 2048, dtype="float32"),
    Workload("prot-t5", 4, 1024, dtype="float16"),
    Workload("prot-t5", 1, 12_000),
    Workload("flan-t5-xxl", 1, 512),
    Workload("flan-t5-large", 8, 512, training=True),
    Workload("flan-t5-xl", 8, 1024, training=True),
    Workload("prot-t5", 1, 4096),
    Workload("prot-t5", 1, 512, dtype="float32"),
    Workload("prot-t5", 1, 8192, dtype="float32"),
    Workload("llama-1b", 1, 32_768),
)

# How attention is computed, how the model is compiled (None: not at all)
WAYS: dict[str, tuple[str, str | None]] = {
    "eager": ("eager", None),
    "sdpa": ("sdpa", None),
    "flex": ("flex_attention", None),
    "lengthwise": ("lengthwise", None),
    "eager compiled": ("eager", "default"),
    "sdpa compiled": ("sdpa", "default"),
    "lengthwise compiled": ("lengthwise", "default"),
    "eager reduce-overhead": ("eager", "reduce-overhead"),
    "sdpa reduce-overhead": ("sdpa", "reduce-overhead"),
    "lengthwise reduce-overhead": ("lengthwise", "reduce-overhead"),
}
OURS = tuple(way for way in WAYS if way.startswith("lengthwise"))


def tiny(workload: Workload) -> Workload:
    """The same on a few tokens of a model of two layers, on any machine."""
    return replace(workload, rows=2, length=24)


def built(workload: Workload, device: torch.device, small: bool = False) -> Any:
    """The encoder of T5, or a decoder, with random weights, made where it will run."""
    sizes = SHAPES[workload.shape]
    llama = workload.shape.startswith("llama")
    if small:
        names = (
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
        )
        few = dict(zip(names, (32, 32, 2, 2, 1, 16), strict=True))
        sizes = few if llama else {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(TYPES[workload.dtype])
    try:
        with torch.device(device):
            model = tf.LlamaModel(tf.LlamaConfig(**sizes)) if llama else tf.T5EncoderModel(tf.T5Config(**sizes))
    finally:
        torch.set_default_dtype(before)
    return model.train(workload.training).requires_grad_(workload.training)


def batch(workload: Workload, model: Any) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, model.config.vocab_size, (workload.rows, workload.length), generator=generator)
    lengths = torch.full((workload.rows,), workload.length)
    if workload.padded:
        lengths = torch.randint(workload.length // 4, workload.length + 1, (workload.rows,), generator=generator)
        lengths[0] = workload.length
    mask = (torch.arange(workload.length) < lengths[:, None]).long()
    return {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)}


def runner(workload: Workload, model: Any, way: str, until: ExitStack, backend: str = "inductor") -> Callable[[], Tensor]:
    """A forward, or a forward and a backward, by one way, `until` then; raises where that way cannot run this model."""
    attention, mode = WAYS[way]
    # Of its own config and modules, so that graphs are not compiled anew when another way has its turn
    own = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
    if attention != "lengthwise":
        own.set_attn_implementation(attention)
    elif workload.shape.startswith("llama"):
        until.enter_context(lw.extend(own, "none", train_length=2))
    else:
        until.enter_context(lw.accelerate(own, check_finite=False))
    inputs, forward = batch(workload, model), own
    if mode is not None:
        how = {"mode": mode} if backend == "inductor" else {"backend": backend}
        forward = torch.compile(own, dynamic=False, fullgraph=attention == "lengthwise", **how)

    def run() -> Tensor:
        if not workload.training:
            with torch.no_grad():
                output: Tensor = forward(**inputs)[0]
            return output
        states: Tensor = forward(**inputs)[0]
        states.float().square().mean().backward()
        model.zero_grad()
        return states.detach()

    return run
