"""Which tiles are fastest: times the kernels with each of some, for one data type and head size, best first.

    python benchmarks/tiles_gpu.py --dtype float32 --size 128 --length 2048

The tile that is in use is marked. A tile that needs more than the GPU has is named with the reason. float32 is tried in three
passes, as it runs unless PyTorch allows TF32.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import torch

from benchmarks.gpu.timing import repeated
from lengthwise.attention import DistanceBias, Equation, Visible, attention

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def tiles(like: Any, quick: bool) -> Iterator[Any]:
    """The tile in use, then others around it."""
    yield like
    for queries, keys, warps, stages in product((32, 64, 128), (32, 64, 128), (4, 8), (1, 2, 3)):
        if not quick and queries * keys <= 128 * 64 and queries >= 16 * warps // 2:
            yield replace(like, queries=queries, keys=keys, warps=warps, stages=stages)


def tried(module: Any, arguments: tuple[Any, ...], work: Callable[[], object], device: torch.device, quick: bool) -> list[Any]:
    """(seconds, tile) of every tile that runs, fastest first."""
    like, found = module.tile_for(*arguments), []
    for tile in dict.fromkeys(tiles(like, quick)):
        with patch.object(module, "tile_for", lambda *_, tile=tile: tile):
            try:
                found.append((repeated(work, device, most=0.05).seconds, tile))
            except Exception as error:
                print(f"  {tile.queries} x {tile.keys}: {type(error).__name__} {str(error).splitlines()[0][:90]}", flush=True)
    for seconds, tile in sorted(found, key=lambda pair: pair[0])[:6]:
        mark = "  in use" if tile == like else ""
        shape = f"{tile.queries:4} x {tile.keys:4}, {tile.warps} warps, {tile.stages} stages, {tile.precision}"
        print(f"  {seconds * 1e3:9.3f} ms  {shape}{mark}", flush=True)
    return sorted(found, key=lambda pair: pair[0])


def equation(given: argparse.Namespace) -> Equation:
    query, key, value = (
        torch.randn(given.rows, given.heads, given.length, given.size, dtype=TYPES[given.dtype], device=given.device)
        for _ in range(3)
    )
    bias = DistanceBias(torch.randn(given.heads, 257, device=given.device))
    return Equation(query, key, value, Visible.build(given.length, given.length, device=given.device), given.size**-0.5, bias)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=tuple(TYPES), default="float32")
    parser.add_argument("--size", type=int, default=128, help="of a head")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=1, help="sequences")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="the tile in use alone")
    given = parser.parse_args()
    from lengthwise.attention.triton import backward, forward
    from lengthwise.attention.triton.launch import products

    device, whole, dtype = torch.device(given.device), equation(given), TYPES[given.dtype]
    torch.manual_seed(0)
    print("forward", flush=True)
    with torch.no_grad():
        solve = lambda: attention(whole, implementation="triton")  # noqa: E731
        tried(forward, (given.size, dtype, products(dtype)), solve, device, given.quick)
    learning = [t.detach().requires_grad_() for t in (whole.query, whole.key, whole.value)]
    whole = replace(whole, query=learning[0], key=learning[1], value=learning[2])

    def step() -> None:
        output = attention(whole, implementation="triton")[0]
        torch.autograd.grad(output, learning, output.detach())

    print("forward and backward", flush=True)
    tried(backward, (given.size, dtype, False, products(dtype)), step, device, given.quick)


if __name__ == "__main__":
    main()
