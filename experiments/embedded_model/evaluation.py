"""Held-out accuracy a task, by greedy generation at full length, and perplexity of held-out novels."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.embedded_model import lines, passkey, topics
from experiments.embedded_model.example import LONGEST, Example, Stock
from experiments.embedded_model.mixture import IGNORED, collate, continuation
from lengthwise.tasks import TASKS

Maker = Callable[[Stock, random.Random, int], Example]
MAKERS: dict[str, Maker] = {
    "passkey filler": passkey.in_filler,
    "passkey prose": passkey.in_prose,
    "line": lines.ours,
    "line official": lines.official,
    "topic": topics.ours,
    "topic official": topics.in_official_layout,
}
PIECE = 32  # examples generated for at once


def cases(stock: Stock, samples: int, seed: int = 1) -> dict[str, list[Example]]:
    """The same examples at every call; official layouts only where the data folder has them."""
    wanted = {name: make for name, make in MAKERS.items() if stock.official.labels or "official" not in name}
    return {name: [_case(stock, name, make, seed, at) for at in range(samples)] for name, make in wanted.items()}


def _case(stock: Stock, name: str, make: Maker, seed: int, at: int) -> Example:
    made = make(stock, random.Random(f"evaluation {name} {seed} {at}"), LONGEST)
    assert len(made.tokens) <= LONGEST, f"{name} case {at} takes {len(made.tokens)} tokens"
    return made


def texts(stock: Stock, samples: int, seed: int = 1) -> list[Example]:
    return [continuation(stock, random.Random(f"evaluation text {seed} {at}"), LONGEST, 64) for at in range(samples)]


def accuracy(model: Any, tokenizer: Any, examples: list[Example]) -> float:
    """Percent right."""
    right = 0.0
    for at in range(0, len(examples), PIECE):
        some = examples[at : at + PIECE]
        inputs, *_ = collate(some).to(model.device)
        longest = max(len(one.target) for one in some) + 4
        with torch.inference_mode(), _autocast(model):
            out = model.generate(
                input_ids=inputs, attention_mask=(inputs != 0).long(), max_new_tokens=longest, do_sample=False, num_beams=1
            )
        for one, answer in zip(some, tokenizer.decode_batch(out.tolist(), skip_special_tokens=True), strict=True):
            right += score(one, answer)
    return 100 * right / len(examples)


def score(one: Example, answer: str) -> float:
    return TASKS[one.source.split()[0]].score(answer, one.answer)


def perplexity(model: Any, examples: list[Example]) -> float:
    total, count = 0.0, 0
    for at in range(0, len(examples), PIECE):
        inputs, labels, *_ = collate(examples[at : at + PIECE]).to(model.device)
        with torch.inference_mode(), _autocast(model):
            total += float(losses(model, inputs, labels).sum())
        count += int((labels != IGNORED).sum())
    return math.exp(min(20.0, total / count))


def losses(model: Any, inputs: Tensor, labels: Tensor) -> Tensor:  # [examples, target length]
    """Cross-entropy of every target token in float32, 0 where there is none."""
    return both_losses(model, inputs, labels)[0]


def both_losses(model: Any, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The decoder's losses, [examples, target length], and the encoder's last state, [examples, width]."""
    start = torch.zeros_like(labels[:, :1])
    before = torch.cat([start, labels[:, :-1].clamp_min(0)], 1)
    mask = inputs != 0
    out = model(input_ids=inputs, attention_mask=mask.long(), decoder_input_ids=before, use_cache=False)
    last = out.encoder_last_hidden_state[torch.arange(len(inputs), device=inputs.device), mask.sum(1) - 1]
    return token_losses(out.logits, labels), last


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    flat = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return flat.view(labels.shape)


def _autocast(model: Any) -> torch.autocast:
    kind = model.device.type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda")
