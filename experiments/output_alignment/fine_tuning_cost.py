"""What a step with the misalignment loss costs more than one without.

Both read the same rows twice and forward as many tokens; the rest is the comparison of the two readings. Steps of forward and
backward take turns, so that whatever else runs disturbs both alike; the ratio is the median over pairs of neighbours. It is
kept in OUT/cost.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.common.files import write_whole
from lengthwise.models.patches import in_mode
from lengthwise.training.output_alignment.regulariser import Regulariser, regularised_loss

FILE = "cost.json"
WARM, PAIRS = 3, 30
ALPHA = 0.1


@dataclass(frozen=True)
class Cost:
    ratio: float  # of a step with the loss to one without, median over pairs
    low: float  # quartiles
    high: float
    pairs: int
    tokens: int  # that a step forwards, with the loss and without
    device: str


def measured(model: Any, train_length: int, batch: int, dtype: str, pairs: int) -> Cost:
    """In training mode while it lasts; the weights are not moved."""
    device = next(model.parameters()).device
    extra = train_length // 4
    rows = torch.randint(model.config.vocab_size, (batch, train_length + extra), generator=torch.Generator().manual_seed(0))
    step = _step(model, rows.to(device), train_length, extra, dtype)
    try:
        with in_mode(model, training=True):
            times = [(_seconds(step, 0.0, device), _seconds(step, ALPHA, device)) for _ in range(WARM + pairs)][WARM:]
    finally:
        model.zero_grad(set_to_none=True)
    low, ratio, high = np.quantile([slow / fast for fast, slow in times], [0.25, 0.5, 0.75])
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return Cost(float(ratio), float(low), float(high), pairs, 2 * batch * train_length, name)


def keep(cost: Cost, out: Path) -> None:
    write_whole(out / FILE, json.dumps(asdict(cost)) + "\n")


def kept(out: Path) -> Cost | None:
    file = out / FILE
    return Cost(**json.loads(file.read_text())) if file.exists() else None


def _step(model: Any, rows: Tensor, length: int, extra: int, dtype: str) -> Callable[[float], None]:
    def step(alpha: float) -> None:
        with torch.autocast(rows.device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = regularised_loss(model, {"input_ids": rows}, Regulariser(length, alpha), extra)
        loss.backward()

    return step


def _seconds(step: Callable[[float], None], alpha: float, device: torch.device) -> float:
    """Of the processor on a CPU, of the clock on a GPU."""
    on_gpu = device.type == "cuda"
    now = time.perf_counter if on_gpu else time.process_time
    if on_gpu:
        torch.cuda.synchronize()
    begun = now()
    step(alpha)
    if on_gpu:
        torch.cuda.synchronize()
    return now() - begun
