"""A finished model as plain files: bf16 safetensors and configuration of a stock T5, and its tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import T5ForConditionalGeneration

from experiments._lib import bpe


def export(plain: T5ForConditionalGeneration, tokenizer: Tokenizer, folder: Path, most_bytes: int) -> int:
    """Returns the size of the weights in bytes, which must be below `most_bytes`."""
    plain = plain.to(torch.bfloat16)
    plain.generation_config.decoder_start_token_id = 0
    plain.save_pretrained(folder)
    bpe.save(tokenizer, folder)
    size = (folder / "model.safetensors").stat().st_size
    if size >= most_bytes:
        raise ValueError(f"{folder}/model.safetensors has {size:,} bytes, not below {most_bytes:,}")
    return size
