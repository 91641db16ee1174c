"""The finished model as plain files: bf16 safetensors and configuration of a stock T5, and its tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import T5ForConditionalGeneration

from experiments.embedded_model import vocabulary
from experiments.embedded_model.model import stock

MOST_BYTES = 16_000_000


def export(model: T5ForConditionalGeneration, tokenizer: Tokenizer, folder: Path) -> int:
    """Returns the size of the weights in bytes."""
    plain = stock(model).to(torch.bfloat16)
    plain.generation_config.decoder_start_token_id = 0
    plain.save_pretrained(folder)
    vocabulary.save(tokenizer, folder)
    size = (folder / "model.safetensors").stat().st_size
    if size >= MOST_BYTES:
        raise ValueError(f"{folder}/model.safetensors has {size:,} bytes, not below {MOST_BYTES:,}")
    return size
