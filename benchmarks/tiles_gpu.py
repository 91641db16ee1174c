"""Which tiles are fastest: times the kernels with each of some, for one data type and head size, best first.

    python benchmarks/tiles_gpu.py --dtype float32 --size 128 --length 2048
    python benchmarks/tiles_gpu.py --dtype bfloat16 --size 256 --length 16384 --heads 4 --mask causal --no-bias

The tile that is in use is marked; the others are near it, or with --all any. A tile that needs more than the GPU has is named
with the reason. Compiling takes longest: processes with a --part each fill the cache that a last one reads. float32 is tried in
several products, as it runs unless PyTorch allows TF32. Without a bias PyTorch's own kernels are beside ours.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from benchmarks.gpu.timing import repeated
from lengthwise.attention import DistanceBias, Equation, Visible, attention

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def tiles(like: Any, which: str) -> Iterator[Any]:
    """The tile in use, then others around it."""
    yield like
    if which == "near" and like.registers is not None:
        yield replace(like, registers=None)
    for queries, keys, warps, stages in product((16, 32, 64, 128), (16, 32, 64, 128), (4, 8), (1, 2, 3)):
        other = (queries, keys) != (like.queries, like.keys)
        near = which == "near" and min(queries, keys) >= 32 and (not other or stages == like.stages)
        # The table is widened by 192 distances
        if (which == "all" or near) and queries + keys <= 192 and max(queries, keys) >= 8 * warps:
            yield replace(like, queries=queries, keys=keys, warps=warps, stages=stages, registers=None)


def tried(
    module: Any, arguments: tuple[Any, ...], work: Callable[[], object], device: torch.device, given: argparse.Namespace
) -> list[Any]:
    """(seconds, tile) of every tile that runs, fastest first."""
    from lengthwise.attention.triton import planned

    like, found = module.tile_for(*arguments), []
    for tile in [*dict.fromkeys(tiles(like, given.which))][given.part[0] :: given.part[1]]:
        with patch.object(module, "tile_for", lambda *_, tile=tile: tile), patch.object(planned, "_plans", {}):
            try:
                found.append((repeated(work, device, most=0.05).seconds, tile))
            except Exception as error:
                print(f"  {tile.queries} x {tile.keys}: {type(error).__name__} {str(error).splitlines()[0][:90]}", flush=True)
    for seconds, tile in sorted(found, key=lambda pair: pair[0])[:6]:
        mark = "  in use" if tile == like else ""
        shape = f"{tile.queries:4} x {tile.keys:4}, {tile.warps} warps, {tile.stages} stages, {tile.registers} registers"
        print(f"  {seconds * 1e3:9.3f} ms  {shape}{mark}", flush=True)
    return sorted(found, key=lambda pair: pair[0])


def equation(given: argparse.Namespace) -> Equation:
    query, key, value = (
        torch.randn(given.rows, given.heads, given.length, given.size, dtype=TYPES[given.dtype], device=given.device)
        for _ in range(3)
    )
    bias = None if given.no_bias else DistanceBias(torch.randn(given.heads, 257, device=given.device))
    window = given.window if given.mask == "window" else None
    visible = Visible.build(given.length, given.length, causal=given.mask != "full", window=window, device=given.device)
    return Equation(query, key, value, visible, given.size**-0.5, bias)


def beside(whole: Equation, given: argparse.Namespace, device: torch.device) -> None:
    """Times of PyTorch's own kernels, where they compute the same equation."""
    if whole.bias is not None or given.mask == "window":
        return
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        try:
            with sdpa_kernel(backend):
                work = partial(sdpa, whole.query, whole.key, whole.value, is_causal=given.mask == "causal")
                print(f"  {repeated(work, device, most=0.05).seconds * 1e3:9.3f} ms  {backend.name}", flush=True)
        except RuntimeError as error:
            print(f"  {backend.name}: {str(error).splitlines()[0][:90]}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=tuple(TYPES), default="float32")
    parser.add_argument("--size", type=int, default=128, help="of a head")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=1, help="sequences")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mask", choices=("full", "causal", "window"), default="full")
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--no-bias", action="store_true")
    parser.add_argument(
        "--quick", dest="which", action="store_const", const="one", default="near", help="the tile in use alone"
    )
    parser.add_argument("--all", dest="which", action="store_const", const="all", help="every tile")
    parser.add_argument(
        "--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every N-th tile, from the I-th on"
    )
    parser.add_argument("--forward", action="store_true", help="no gradients")
    given = parser.parse_args(words)
    from lengthwise.attention.triton import backward, forward
    from lengthwise.attention.triton.launch import products

    device, whole, dtype = torch.device(given.device), equation(given), TYPES[given.dtype]
    torch.manual_seed(0)
    print("forward", flush=True)
    with torch.no_grad():
        solve = lambda: attention(whole, implementation="triton")  # noqa: E731
        tried(forward, (given.size, dtype, products(dtype)), solve, device, given)
        beside(whole, given, device)
    if given.forward:
        return
    learning = [t.detach().requires_grad_() for t in (whole.query, whole.key, whole.value)]
    whole = replace(whole, query=learning[0], key=learning[1], value=learning[2])
    if whole.bias is not None:
        learning.append(whole.bias.table.requires_grad_())

    def step() -> None:
        output = attention(whole, implementation="triton")[0]
        torch.autograd.grad(output, learning, output.detach())

    print("forward and backward", flush=True)
    tried(backward, (given.size, dtype, products(dtype)), step, device, given)


if __name__ == "__main__":
    main()
