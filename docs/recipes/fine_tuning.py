"""Fine-tune a Flan-T5 on long inputs: no matrix of the bias, layers computed again in the backward pass, compiled if you like.

python fine_tuning.py --model google/flan-t5-base --tokens 4096 --rows 4
python fine_tuning.py                              # random weights
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import transformers as tf
from beside_stock import beside_stock

import lengthwise as lw

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def step(model: Any, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor]) -> float:
    with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="without it a small T5 with random weights")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    torch.manual_seed(0)
    if given.model:
        model = tf.T5ForConditionalGeneration.from_pretrained(given.model)
    else:
        sizes = {"vocab_size": 128, "d_model": 64, "d_kv": 32, "d_ff": 128, "num_layers": 2, "num_heads": 4}
        model = tf.T5ForConditionalGeneration(tf.T5Config(**sizes, decoder_start_token_id=0))
    model.train().to(DEVICE)
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # A question whose answer stands at the beginning of the input
    ids = torch.randint(3, model.config.vocab_size, (given.rows, given.tokens), device=DEVICE)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, :4].clone()}
    beside_stock(model, lambda: step(model, optimizer, batch), rounds=1)
    lw.accelerate(model)
    losses = [step(model, optimizer, batch) for _ in range(given.steps)]
    print(f"losses {', '.join(f'{loss:.3f}' for loss in losses)}")
    lw.restore(model)


if __name__ == "__main__":
    main()
