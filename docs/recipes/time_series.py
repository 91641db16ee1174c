"""A T5 over time series, whose tokens are bins of values (as Chronos'): longer histories, calibrated without a tokenizer.

python time_series.py --model amazon/chronos-t5-small
python time_series.py                              # random weights
"""

from __future__ import annotations

import argparse

import torch
import transformers as tf
from beside_stock import beside_stock

import lengthwise as lw

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SPECIAL = 2  # padding, and the end of a series


def binned(series: torch.Tensor, bins: int) -> torch.Tensor:  # [rows, steps] -> [rows, steps]
    """Values over their mean size, cut into bins between -15 and 15, as tokens."""
    scaled = series / series.abs().mean(-1, keepdim=True).clamp_min(1e-6)
    return torch.bucketize(scaled, torch.linspace(-15, 15, bins - SPECIAL - 1)) + SPECIAL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="without it a small T5 with random weights")
    parser.add_argument("--steps", type=int, default=1024)
    given = parser.parse_args()
    torch.manual_seed(0)
    if given.model:
        model = tf.T5ForConditionalGeneration.from_pretrained(given.model)
    else:
        sizes = {"vocab_size": 512, "d_model": 64, "d_kv": 32, "d_ff": 128, "num_layers": 2, "num_heads": 4}
        model = tf.T5ForConditionalGeneration(tf.T5Config(**sizes, decoder_start_token_id=0))
    model.eval().to(DEVICE)
    steps = torch.arange(given.steps)
    series = torch.stack([torch.sin(steps / period) + 0.1 * torch.randn(given.steps) for period in (7.0, 30.0)])
    ids = binned(series, model.config.vocab_size).to(DEVICE)
    told = {"max_new_tokens": 8, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    beside_stock(model, lambda: model.generate(ids, **told), rounds=1)
    alignment = lw.calibrate(model, None, length=given.steps, input_ids=ids, train_length=512, show_progress=False)
    with lw.accelerate(model), lw.extend(model, alignment):
        forecast = model.generate(ids, **told)
    print(f"tau {alignment.temperatures[0].tau:.3f} at {given.steps} steps; the next bins: {forecast[0, 1:].tolist()}")


if __name__ == "__main__":
    main()
