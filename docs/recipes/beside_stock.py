"""How long some work takes with a T5 as it is, and accelerated."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import lengthwise as lw


def beside_stock(holder: Any, work: Callable[[], Any], rounds: int = 3) -> Any:
    """Print the best of some rounds of each, in turns, and return what the accelerated one gives; `holder` holds the T5."""
    best = {"as it is": float("inf"), "accelerated": float("inf")}
    for _ in range(rounds + 1):  # the first one warms up
        for way in best:
            if way == "accelerated":
                lw.accelerate(holder)
            started = time.perf_counter()
            result = work()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            best[way] = min(best[way], time.perf_counter() - started)
            lw.restore(holder)
    print(", ".join(f"{way} {seconds:.3f} s" for way, seconds in best.items()))
    return result
