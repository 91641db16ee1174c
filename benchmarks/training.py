"""What the misalignment loss adds to a step of training.

    python benchmarks/training.py --out benchmarks/results/training.json

A Llama of random weights; a step is forward, backward and AdamW. All steps see as many tokens: the plain one reads 2 B rows of
L tokens once, the others read B rows twice, with cross-entropies alone and with the misalignment loss. Steps take turns, so
that what else runs disturbs all alike; seconds are medians, of processor time on a CPU, of the clock on a GPU.
`of two readings` is what the loss itself adds. A plain step on the same B rows would read half as many tokens.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers

from lengthwise.models.fingerprint import versions
from lengthwise.training.output_alignment.regulariser import Regulariser, regularised_loss


def made(given: argparse.Namespace) -> Any:
    heads = max(1, given.width // 48)
    config = transformers.LlamaConfig(
        vocab_size=given.words,
        hidden_size=given.width,
        intermediate_size=8 * given.width // 3,
        num_hidden_layers=given.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=48,
        use_cache=False,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).to(given.device).train()


def steps(model: Any, given: argparse.Namespace) -> dict[str, Callable[[], torch.Tensor]]:
    """The loss of each kind of step; all read 2 B L tokens."""
    generator, length, extra = torch.Generator().manual_seed(0), given.length, given.length // 4
    rows = torch.randint(given.words, (given.rows, length + extra), generator=generator).to(given.device)
    twice = torch.randint(given.words, (2 * given.rows, length), generator=generator).to(given.device)
    return {
        "plain": lambda: model(input_ids=twice, labels=twice).loss,
        "two readings": lambda: regularised_loss(model, {"input_ids": rows}, Regulariser(length, 0.0), extra),
        "with the loss": lambda: regularised_loss(model, {"input_ids": rows}, Regulariser(length, 0.1), extra),
    }


def seconds(step: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, device: str) -> float:
    on_cpu = device == "cpu"
    if not on_cpu:
        torch.cuda.synchronize()
    now = time.process_time if on_cpu else time.perf_counter
    start = now()
    step().backward()
    optimizer.step()
    optimizer.zero_grad()
    if not on_cpu:
        torch.cuda.synchronize()
    return now() - start


def measured(given: argparse.Namespace) -> dict[str, Any]:
    model = made(given)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    kinds = steps(model, given)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(1 + given.steps):
        for name, step in kinds.items():
            times[name].append(seconds(step, optimizer, given.device))
    # The first round pays for what is made once
    found = {name: median(some[1:]) for name, some in times.items()}
    shape = {name: getattr(given, name) for name in ("layers", "width", "words", "length", "rows", "steps", "device")}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    turns = [round(ours / plain, 4) for ours, plain in zip(times["with the loss"][1:], times["plain"][1:], strict=True)]
    about = {"shape": shape, "parameters": parameters, "seconds": found, "of plain by turn": turns}
    return {**about, "threads": torch.get_num_threads(), **versions()}


def printed(record: dict[str, Any]) -> None:
    found, shape = record["seconds"], record["shape"]
    size = f"{record['parameters'] / 1e6:.0f} M parameters, {shape['words']:,} words, {shape['length']} tokens"
    print(f"{size}, {2 * shape['rows']} rows, {shape['device']}")
    print(f"{'step':16}{'seconds':>10}{'of plain':>10}{'of two readings':>17}")
    for name, value in found.items():
        print(f"{name:16}{value:10.3f}{value / found['plain']:10.3f}{value / found['two readings']:17.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=288)
    parser.add_argument("--words", type=int, default=32000)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rows", type=int, default=2, help="B, rows that are read twice")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    record = measured(given)
    printed(record)
    if given.out is not None:
        earlier = json.loads(given.out.read_text()) if given.out.exists() else []
        given.out.write_text(json.dumps([*earlier, record], indent=2) + "\n")


if __name__ == "__main__":
    main()
