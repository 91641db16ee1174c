"""What a token of generation costs under each method, beside transformers' own attention, in one run.

    python benchmarks/decoding.py --after 16384 --out benchmarks/results/decoding.json    # a Llama of 1 B shape
    python benchmarks/decoding.py stories15M --after 2000 --method streaming_llm

Each method has a copy of the model, which shares its weights, and a cache of its own. After a prompt of `--after` tokens they
take turns token by token, in an order that moves on: what disturbs the machine disturbs all. A token's time is that of one
forward and the choice of the next token: processor time on a CPU, which other programs disturb less, the clock on a GPU.
A ratio is the median over tokens of a method's time to that of transformers' own attention in the same turn, between quartiles.
Keys are what the first layer's cache holds at the end. Stock has gone through these lengths once before, alone: cuDNN, which
PyTorch takes first on an H200, prepares for each number of keys when it first meets it (`first`, milliseconds a token).
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import lengthwise as lw
from lengthwise.evaluation.sweep.run_config import made_with
from lengthwise.models.load import load

STOCK = "sdpa of transformers"
WARM = 4  # tokens of each before those that count
# Of the shape of Llama 3.2 1B
LLAMA_1B = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32}
LLAMA_1B |= {"num_key_value_heads": 8, "max_position_embeddings": 8192, "vocab_size": 32000}
METHODS = ("none", "log", "infoscale", "interpolation:factor=2", "ntk:factor=2", "yarn:factor=2", "yarn:dynamic=true")
METHODS += ("window", "streaming_llm", "lm_infinite", "rerope", "self_extend", "dual_chunk", "string", "dpe", "ms_poe")


class Generation:
    """One method's model and cache, and what its tokens took."""

    def __init__(self, model: Any, method: str, prompt: torch.Tensor, extended: ExitStack) -> None:
        self.method, self.seconds = method, list[float]()
        self.model = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
        if method != STOCK:
            extended.enter_context(lw.extend(self.model, method))
        self.cache = DynamicCache(config=model.config)
        self.mask = torch.ones_like(prompt)
        self.token = self._next(prompt)

    def step(self) -> None:
        """One more token, and its time."""
        self.mask = torch.nn.functional.pad(self.mask, (0, 1), value=1)
        before = self._now()
        self.token = self._next(self.token)
        self.seconds.append(self._now() - before)

    def _now(self) -> float:
        if self.model.device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def _next(self, tokens: torch.Tensor) -> torch.Tensor:
        """The most likely token after these; mask and positions are given, as `generate` gives them."""
        seen = self.mask.shape[1]
        positions = torch.arange(seen - tokens.shape[1], seen, device=tokens.device)[None]
        how = {"position_ids": positions, "logits_to_keep": 1, "use_cache": True}
        said = self.model(tokens, attention_mask=self.mask, past_key_values=self.cache, **how)
        return said.logits[:, -1:].argmax(-1)

    def record(self, stock: Generation) -> dict[str, Any]:
        each = [ours / theirs for ours, theirs in zip(self.seconds[WARM:], stock.seconds[WARM:], strict=True)]
        low, middle, high = quantiles(each, n=4)
        time = {"milliseconds": 1e3 * median(self.seconds[WARM:]), "ratio": middle, "low": low, "high": high}
        keys = self.cache.layers[0].get_mask_sizes(0)[0]
        return {"method": self.method, **{name: round(number, 3) for name, number in time.items()}, "keys": keys}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", nargs="?", help="without it a Llama of 1 B parameters with random weights")
    parser.add_argument("--after", type=int, default=16384, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64)
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
    shape = {"model": Path(given.model).name if given.model else "Llama, 1 B", "after": given.after}
    with torch.no_grad(), ExitStack() as extended:
        before = Generation(model, STOCK, prompt.to(model.device), extended)
        for _ in range(WARM + given.tokens):
            before.step()
        first = 1e3 * median(before.seconds[WARM:])
        del before
        turns = [Generation(model, method, prompt.to(model.device), extended) for method in (STOCK, *given.method)]
        stock = turns[0]
        for _ in range(WARM + given.tokens):
            for generation in turns:
                generation.step()
            turns = turns[1:] + turns[:1]
        in_order = sorted(turns, key=lambda generation: (STOCK, *given.method).index(generation.method))
        records = [{**shape, **generation.record(stock)} for generation in in_order]
    print(f"{STOCK:24} {first:8.2f} ms a token, the first time")
    for record in records:
        print("{method:24} {milliseconds:8.2f} ms {ratio:6.3f} ({low:.3f} to {high:.3f}) {keys:7,} keys".format(**record))
    if given.out:
        made = {"made_with": made_with(model.device.type), "first": round(first, 3), "records": records}
        given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
