"""What a call costs the host: microseconds until it has been launched, beside PyTorch's own attention; ours may take 15 more.

    python benchmarks/host_gpu.py
    python benchmarks/host_gpu.py --length 1024     # 32 heads of 64, until the GPU has done them
    python benchmarks/host_gpu.py --device cpu      # tries the benchmark out; a CPU computes while it is called

Inputs are so small that the GPU never keeps the host waiting. `direct` is what an accelerated T5 calls, `attention` what an
extended model calls, `step` forward and backward; calls take turns, the median turn counts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from lengthwise.attention import DistanceBias, Equation, Visible, attention
from lengthwise.attention.triton.direct import direct

TURNS, CALLS = 15, 50


def ways(device: str, heads: int, length: int) -> dict[str, Callable[[], object]]:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    query, key, value = (torch.randn(1, heads, length, 64, dtype=dtype, device=device) for _ in range(3))
    bias = DistanceBias(torch.randn(heads, 257, device=device))
    wide, visible = bias.widened[None, :, None].contiguous(), Visible.build(length, length, device=device)
    whole = Equation(query, key, value, visible, 1.0, bias)
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (query, key, value)]
    learning = replace(whole, query=leaves[0], key=leaves[1], value=leaves[2])
    table = bias.table.detach().clone().requires_grad_()
    learning_bias = replace(learning, bias=DistanceBias(table))
    g = torch.full((1, 1, 1), 1.1, device=device)
    made: dict[str, Callable[[], object]] = {
        "sdpa": lambda: sdpa(query, key, value),
        "attention": lambda: attention(whole),
        "attention, made anew, g": lambda: attention(Equation(query, key, value, visible, 1.0, bias, g)),
        "sdpa step": lambda: torch.autograd.grad(sdpa(*leaves), leaves, query),
        "attention step": lambda: torch.autograd.grad(attention(learning)[0], leaves, query),
        "attention step, table": lambda: torch.autograd.grad(attention(learning_bias)[0], [*leaves, table], query),
    }
    if device == "cuda":
        made["direct"] = lambda: direct(query, key, value, visible, wide, bias.radius, 1.0)
    return made


def turn(call: Callable[[], object], wait: Callable[[], object], done: bool) -> float:
    """Microseconds a call, until it is launched or until it is done."""
    wait()
    begun = time.perf_counter()
    for _ in range(CALLS):
        call()
    launched = time.perf_counter()
    wait()
    return ((time.perf_counter() if done else launched) - begun) / CALLS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--length", type=int, help="of inputs that keep a GPU busy")
    given = parser.parse_args()
    wait = torch.cuda.synchronize if given.device == "cuda" else lambda: None
    calls, done = ways(given.device, 32 if given.length else 2, given.length or 64), given.length is not None
    for call in calls.values():
        turn(call, wait, done)
    turns = [{name: turn(call, wait, done) for name, call in calls.items()} for _ in range(TURNS)]
    found = {name: median(one[name] for one in turns) for name in calls}
    for name, microseconds in found.items():
        beside = found["sdpa step" if "step" in name else "sdpa"]
        print(f"{name:24} {microseconds:8.1f} us  {microseconds - beside:+8.1f} beside sdpa")


if __name__ == "__main__":
    main()
