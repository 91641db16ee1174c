"""CPU seconds that making one prompt takes, by task and tokenizer.

    python benchmarks/prompts.py --tokenizer embedded --tokenizer model.gguf --out benchmarks/results/prompts.json

A task's first prompt is told apart from the others: it reads the material, and its tokenizer meets the words for the first
time. Seconds of the others are medians. `tokenised` is what tokenising the prompt takes afterwards, a measure of how busy the
machine was; the prompt must have the tokens that it says.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from statistics import median
from typing import Any

from transformers import AutoTokenizer, ByT5Tokenizer

from lengthwise.models.load import load
from lengthwise.tasks import TASKS


def tokenizer_of(name: str) -> Any:
    if name == "byt5":
        return ByT5Tokenizer()
    path = Path(name)
    if path.suffix == ".gguf":
        return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return load(name)[1]


def measure(tokenizer: Any, task: str, length: int, prompts: int) -> dict[str, Any]:
    seconds, tokenised, tokens = [], [], []
    for seed in range(prompts + 1):
        start = time.process_time()
        (sample,) = TASKS[task].samples(tokenizer, length, 1, seed)
        made = time.process_time()
        count = len(tokenizer(sample.prompt, verbose=False).input_ids)
        seconds.append(made - start)
        tokenised.append(time.process_time() - made)
        if sample.tokens != count:
            raise SystemExit(f"{task}: a prompt has {count} tokens, and says {sample.tokens}")
        tokens.append(sample.tokens)
    first, *others = seconds
    rounded = {"cpu_seconds": median(others), "tokenised": median(tokenised), "first": first}
    return {**{name: round(value, 4) for name, value in rounded.items()}, "fewest_tokens": min(tokens)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", action="append", help="embedded, byt5, a directory or a GGUF file", required=True)
    parser.add_argument("--task", nargs="+", default=[name for name in TASKS if name != "answer"])
    parser.add_argument("--length", type=int, default=65536)
    parser.add_argument("--prompts", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the records here as JSON")
    given = parser.parse_args()
    records = []
    for name in given.tokenizer:
        tokenizer = tokenizer_of(name)
        for task in given.task:
            row = {"tokenizer": Path(name).stem, "task": task, "length": given.length, "machine": platform.machine()}
            records.append({**row, **measure(tokenizer, task, given.length, given.prompts)})
            print(json.dumps(records[-1]), flush=True)
    if given.out:
        given.out.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
