"""T5's attention on a CPU: processor time of a forward and of a training step, accelerated, beside sdpa.

    python benchmarks/accelerate_cpu.py --out benchmarks/results/accelerate_cpu.json

An encoder of one layer, two heads of 64 and narrow feed-forwards, so that attention is nearly all of it; random weights, one
thread. Ways take turns, the median turn counts; `ratio` is sdpa's time over ours. Padded: a third of the row.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import torch
import transformers as tf
from torch import Tensor

import lengthwise as lw
from lengthwise.common.files import write_whole

SIZES = {"vocab_size": 304, "d_model": 64, "d_kv": 64, "d_ff": 64, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
WAYS = ("sdpa", "lengthwise")
TURNS = 5


def built(way: str, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    model = tf.T5EncoderModel(tf.T5Config(**SIZES)).to(dtype)
    if way == "lengthwise":
        lw.accelerate(model)
    else:
        model.set_attn_implementation(way)
    return model


def seconds(model: Any, inputs: dict[str, Tensor], training: bool) -> float:
    begun = time.process_time()
    with torch.set_grad_enabled(training):
        states = model(**inputs)[0]
        if training:
            states.float().square().mean().backward()
    return time.process_time() - begun


def measured(dtype: str, training: bool, length: int, padded: bool, turns: int) -> dict[str, Any]:
    ids = torch.randint(3, 300, (1, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    if padded:
        mask[0, -length // 3 :] = 0
    models = {way: built(way, getattr(torch, dtype)) for way in WAYS}
    inputs = {"input_ids": ids, "attention_mask": mask}
    rounds = [{way: seconds(model, inputs, training) for way, model in models.items()} for _ in range(turns + 1)][1:]
    times = {way: median(one[way] for one in rounds) for way in WAYS}
    case = {"dtype": dtype, "training": training, "length": length, "padded": padded}
    return {
        **case,
        **{way: round(time, 4) for way, time in times.items()},
        "ratio": round(times["sdpa"] / times["lengthwise"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    records = []
    for dtype, training, length, padded in product(("float32", "bfloat16"), (False, True), given.length, (False, True)):
        records.append(measured(dtype, training, length, padded, given.turns))
        print(records[-1], flush=True)
    if given.out is not None:
        write_whole(given.out, json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
