"""What a token costs as a generation grows: a rolling cache beside a full one.

    python benchmarks/generation.py MODEL --tokens 2000

Milliseconds are medians over 100 tokens, of processor time on a CPU, which other programs disturb less, of the clock on a GPU;
keys are what the first layer's cache holds.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from transformers import DynamicCache

import lengthwise as lw
from lengthwise.models.load import load

AROUND = 50


class Clock:
    """Looks at the time at every token."""

    def __init__(self, device: str) -> None:
        self.now = time.process_time if device == "cpu" else time.perf_counter
        self.times: list[float] = []

    def put(self, _: Any) -> None:
        self.times.append(self.now())

    def end(self) -> None: ...

    def milliseconds(self, token: int) -> float:
        times = self.times[token - AROUND : token + AROUND + 1]
        return 1e3 * median(b - a for a, b in pairwise(times))


def generated(model: Any, method: str, tokens: int) -> tuple[Clock, DynamicCache]:
    clock, cache = Clock(model.device.type), DynamicCache()
    start = torch.tensor([[model.config.bos_token_id]], device=model.device)
    options: dict[str, Any] = {"max_new_tokens": tokens + AROUND, "min_new_tokens": tokens + AROUND, "do_sample": True}
    torch.manual_seed(0)
    with lw.extend(model, method):
        model.generate(start, attention_mask=torch.ones_like(start), past_key_values=cache, streamer=clock, **options)
    return clock, cache


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--method", nargs="+", default=["streaming_llm", "none"])
    given = parser.parse_args()
    model, _ = load(given.model)
    print(f"{'method':24} {'ms at 500':>10} {f'ms at {given.tokens}':>12} {'ratio':>6} {'keys kept':>10} {'cache MB':>9}")
    for method in given.method:
        clock, cache = generated(model, method, given.tokens)
        early, late = clock.milliseconds(500), clock.milliseconds(given.tokens)
        size = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers) / 2**20
        kept = cache.layers[0].keys.shape[-2]
        print(f"{method:24} {early:10.2f} {late:12.2f} {late / early:6.2f} {kept:10} {size:9.2f}", flush=True)


if __name__ == "__main__":
    main()
