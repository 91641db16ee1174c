"""A T5 encoder on a CPU: time and memory of lengthwise beside what a user would use instead, transformers eager and sdpa.

t5-small's shape with random weights, one forward of one sequence, each measurement in a process of its own so that peaks do not
hide one another. Seconds are noisy on shared cores; cpu-seconds, ratios within one run and memory are steady.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import time
from pathlib import Path
from typing import Any

SHAPE = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
IMPLEMENTATIONS = ("transformers_eager", "transformers_sdpa", "lengthwise", "lengthwise+statistics")
LENGTHS = (2048, 4096, 8192)


def measure(implementation: str, length: int) -> dict[str, Any]:
    """One forward in this process; call it in a fresh one."""
    import torch
    import transformers

    import lengthwise

    torch.manual_seed(0)
    model = transformers.T5EncoderModel(transformers.T5Config(vocab_size=32128, **SHAPE)).eval()
    ids = torch.randint(3, 32000, (1, length))
    model.set_attn_implementation("eager" if implementation == "transformers_eager" else "sdpa")

    def forward(tokens: torch.Tensor) -> None:
        with torch.inference_mode():
            if implementation == "lengthwise":
                with lengthwise.extend(model, "log"):
                    model(input_ids=tokens)
            elif implementation == "lengthwise+statistics":
                lengthwise.row_statistics(model, tokens, method="log")
            else:
                model(input_ids=tokens)

    forward(ids[:, :600])
    base = _resident_bytes()
    wall, cpu = time.perf_counter(), time.process_time()
    forward(ids)
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "what": "encoder",
        "implementation": implementation,
        "shape": "t5-small",
        "length": length,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "extra_gb": round((peak - base) / 1e9, 3),
        "device": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "lengthwise": lengthwise.__version__,
        },
    }


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def table(records: list[dict[str, Any]]) -> str:
    """Markdown, with ratios to transformers sdpa of the same length."""
    lines = [
        "| length | implementation | seconds | cpu-seconds | of sdpa's | extra memory, GB | of sdpa's |",
        "|--:|---|--:|--:|--:|--:|--:|",
    ]
    sdpa = {r["length"]: r for r in records if r["implementation"] == "transformers_sdpa"}
    for r in records:
        base = sdpa.get(r["length"], r)
        cpu, memory = r["cpu_seconds"] / base["cpu_seconds"], r["extra_gb"] / base["extra_gb"]
        row = (
            r["length"],
            r["implementation"],
            r["seconds"],
            r["cpu_seconds"],
            f"{cpu:.2f}",
            f"{r['extra_gb']:.2f}",
            f"{memory:.3f}",
        )
        lines.append("| " + " | ".join(str(cell) for cell in row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--implementation", nargs="+", choices=IMPLEMENTATIONS, default=IMPLEMENTATIONS)
    parser.add_argument("--out", type=Path, help="write the records here as JSON")
    options = parser.parse_args()
    records = []
    context = multiprocessing.get_context("spawn")
    for length in options.length:
        for implementation in options.implementation:
            with context.Pool(1) as fresh:
                records.append(fresh.apply(measure, (implementation, length)))
            print(json.dumps(records[-1]), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(records, indent=1) + "\n")
    print(table(records))


if __name__ == "__main__":
    main()
