"""Compile the Triton kernels for GPUs that are not here, and say what they need: shared memory, beside what a block may have.

    python -m scripts.compile_kernels                    # Ampere, Ada and Hopper; half an hour on one core
    python -m scripts.compile_kernels --gpu ada --size 64 --dtype bfloat16 --kernel forward

Ends with status 1 where a kernel does not compile or needs more than there is.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from typing import Any
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "0"
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lengthwise.attention import DistanceBias, Equation, Visible
from lengthwise.attention.triton import backward, forward, scan
from lengthwise.attention.triton.launch import ALL_ROWS, USUAL_HEAD, operands_of
from lengthwise.attention.triton.operands import ANY_ADDRESS, ANY_NUMBER

# Compute capability, and bytes of shared memory that a block may have
GPUS = {"ampere": (80, 163 * 1024), "ada": (89, 99 * 1024), "hopper": (90, 227 * 1024)}
TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
POINTERS = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32", torch.int32: "*i32"}
KERNELS = ("forward", "backward", "scan")
TOKENS = 512


def launches(kernel: str, dtype: torch.dtype, size: int, bias: bool, shared: int) -> list[tuple[Any, ...]]:
    """(function, tensors, numbers, tile) of what would be launched for a causal equation of grouped heads."""
    made: list[tuple[Any, ...]] = []

    def record(function: Any, _: int, *rest: Any) -> None:
        made.append((function, *rest))

    query, key = torch.zeros(1, 2, TOKENS, size, dtype=dtype), torch.zeros(1, 1, TOKENS, size, dtype=dtype)
    table = DistanceBias(torch.zeros(2, 257)) if bias else None
    operands = operands_of(Equation(query, key, key, Visible.build(TOKENS, TOKENS, causal=True), 0.125, table), None)
    with ExitStack() as until:
        until.enter_context(patch.object(forward, "shared_memory", lambda _: shared))
        for module in (forward, backward, scan):
            until.enter_context(patch.object(module, "launch", record))
        if kernel == "forward":
            forward.forward(operands, ALL_ROWS)
        elif kernel == "scan":
            scan.scan(operands, torch.ones(scan.AT_ONCE, 1, 1, 1))
        else:
            needs, out = backward.Needs(True, True, True, bias, False), torch.zeros_like(query)
            backward.backward(operands, out, out, torch.zeros(1, 1, 2, TOKENS), needs)
    return made


def shared_memory(function: Any, tensors: tuple[Any, ...], numbers: tuple[Any, ...], tile: Any, capability: int) -> int:
    """Bytes that a compiled kernel needs."""
    signature, constants, facts = {}, {}, {}
    for index, (name, value) in enumerate(zip(function.arg_names, (*tensors, *numbers), strict=True)):
        at = (index,)
        if isinstance(value, torch.Tensor):
            signature[name] = POINTERS[value.dtype]
        elif function.params[index].is_constexpr or (value == 1 and name not in ANY_NUMBER):
            signature[name], constants[at] = "constexpr", value
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
        fixed = name in ANY_NUMBER or name in ANY_ADDRESS or at in constants
        if not fixed and (isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0)):
            facts[at] = [["tt.divisibility", 16]]
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=facts)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=tile.options)
    return int(compiled.metadata.shared)


def cases(given: argparse.Namespace) -> Iterator[tuple[str, str, str, int]]:
    for gpu, kernel, dtype, size in product(given.gpu, given.kernel, given.dtype, given.size):
        if gpu == "hopper" or size <= USUAL_HEAD:
            yield gpu, kernel, dtype, size


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", nargs="+", choices=tuple(GPUS), default=tuple(GPUS))
    parser.add_argument("--kernel", nargs="+", choices=KERNELS, default=KERNELS)
    parser.add_argument("--dtype", nargs="+", choices=tuple(TYPES), default=tuple(TYPES))
    parser.add_argument("--size", nargs="+", type=int, default=[64, 128, 256])
    failures = 0
    for gpu, kernel, dtype, size in cases(parser.parse_args(words)):
        capability, most = GPUS[gpu]
        for function, tensors, numbers, tile in launches(kernel, TYPES[dtype], size, True, most):
            needed = shared_memory(function, tensors, numbers, tile, capability)
            failures += needed > most
            verdict = "too much" if needed > most else "fits"
            print(f"{gpu:7} {function.__name__:10} {dtype:9} {size:4}: {needed:8,} bytes of {most:,}, {verdict}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
