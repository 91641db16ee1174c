"""What a token of generation costs under each method, beside transformers' own attention, in one run.

    python benchmarks/decoding.py --after 16384 --out benchmarks/results/decoding.json    # a Llama of 1 B shape
    python benchmarks/decoding.py stories15M --after 2000 --method streaming_llm

`generate` writes `--tokens` tokens after a prompt of `--after`; methods take turns, `--rounds` times. A token's milliseconds
are the median of the best round, of processor time on a CPU, which other programs disturb less, of the clock on a GPU. Keys are
what the first layer's cache holds at the end.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import lengthwise as lw
from lengthwise.evaluation.sweep.run_config import made_with
from lengthwise.models.load import load

STOCK = "sdpa of transformers"
# Of the shape of Llama 3.2 1B
LLAMA_1B = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32}
LLAMA_1B |= {"num_key_value_heads": 8, "max_position_embeddings": 8192, "vocab_size": 32000}
METHODS = ("none", "log", "infoscale", "interpolation:factor=2", "ntk:factor=2", "yarn:factor=2", "yarn:dynamic=true")
METHODS += ("window", "streaming_llm", "lm_infinite", "rerope", "self_extend", "dual_chunk", "string", "dpe", "ms_poe")


class Clock:
    """A streamer that looks at the time at every token."""

    def __init__(self, device: str) -> None:
        self.now = time.process_time if device == "cpu" else time.perf_counter
        self.times: list[float] = []

    def put(self, _: Any) -> None:
        self.times.append(self.now())

    def end(self) -> None: ...

    @property
    def milliseconds(self) -> float:
        """Of a token; the prompt, and the first token, which waits for it, are not counted."""
        return 1e3 * median(b - a for a, b in pairwise(self.times[2:]))


def a_token(model: Any, method: str, prompt: torch.Tensor, tokens: int) -> tuple[float, int]:
    """Milliseconds of a token, and keys in the first layer."""
    clock, cache = Clock(model.device.type), DynamicCache(config=model.config)
    how: dict[str, Any] = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "streamer": clock}
    with nullcontext() if method == STOCK else lw.extend(model, method):
        model.generate(prompt, attention_mask=torch.ones_like(prompt), past_key_values=cache, pad_token_id=0, **how)
    return clock.milliseconds, cache.layers[0].get_mask_sizes(0)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", nargs="?", help="without it a Llama of 1 B parameters with random weights")
    parser.add_argument("--after", type=int, default=16384, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--method", nargs="+", default=METHODS)
    parser.add_argument("--out", type=Path, help="write the records here as JSON")
    given = parser.parse_args()
    if given.model is None:
        torch.manual_seed(0)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = LlamaForCausalLM(LlamaConfig(**LLAMA_1B)).to(device, torch.bfloat16).eval()
    else:
        model = load(given.model)[0]
    prompt = torch.randint(3, model.config.vocab_size, (1, given.after), generator=torch.Generator().manual_seed(0))
    best = dict.fromkeys((STOCK, *given.method), (math.inf, 0))
    for _ in range(given.rounds):
        best = {method: min(old, a_token(model, method, prompt.to(model.device), given.tokens)) for method, old in best.items()}
    shape = {"model": Path(given.model).name if given.model else "Llama, 1 B", "after": given.after}
    records = [
        {**shape, "method": method, "milliseconds": round(time, 3), "ratio": round(time / best[STOCK][0], 3), "keys": keys}
        for method, (time, keys) in best.items()
    ]
    for record in records:
        print(
            f"{record['method']:24} {record['milliseconds']:8.2f} ms {record['ratio']:6.2f} {record['keys']:7,} keys",
            flush=True,
        )
    if given.out:
        given.out.write_text(json.dumps({"made_with": made_with(model.device.type), "records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
