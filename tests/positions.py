"""Tokens, families and methods for tests of position methods."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import lengthwise as lw
from lengthwise.methods.positions.pose import PoSECollator
from lengthwise.methods.positions.random_positions import RandomPositionsCollator

ROTARY = ["llama", "qwen2", "qwen3", "mistral", "mistral window", "gemma", "gpt_neox", "phi3", "olmo2", "smollm3", "gemma3"]

DISTANCES = [
    "rerope:window=12",
    "rerope:window=12,leak=4",
    "streaming_llm:sinks=3",
    "streaming_llm:sinks=3,window=10",
    "streaming_llm:sinks=3,window=10,reindex=false",
    "lm_infinite:sinks=3",
    "self_extend:group=3,window=10",
    "dual_chunk:chunk=16,window=5",
    "string:shift=12,window=4",
    "dpe:scales=2-3,window=10",
]


# Rotations of ours, of every kind, that place all keys where they are
UNCHANGED = ["rerope:window=12,leak=1", "dpe:scales=1-1,window=12", "ms_poe:min_ratio=1,max_ratio=1,skip=1"]


def ids(length: int, batch: int = 1, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 384, (batch, length), generator=generator)


def logits(model: Any, tokens: Tensor, method: str = "none", **options: Any) -> Tensor:
    with lw.extend(model, method, **options), torch.inference_mode():
        return model(tokens, use_cache=False).logits.double()  # type: ignore[no-any-return]


COLLATORS = [PoSECollator, RandomPositionsCollator]


def leaping(collator: Any, length: int, target: int) -> dict[str, Tensor]:
    batch = {"input_ids": ids(length, batch=2), "attention_mask": torch.ones(2, length, dtype=torch.long)}
    return collator(target, seed=1)(batch)  # type: ignore[no-any-return]


def reach(positions: Tensor) -> int:
    return int((positions[:, -1] - positions[:, 0]).amax()) + 1
