"""Tiny models that answer: random weights, digits only, another answer for every prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as tf

from tests.conftest import DECODER_SIZES, T5_SIZES

# A question of the tasks has about 200 bytes, and these models read bytes
TRAIN_LENGTH = 256
DIGITS = slice(ord("0") + 3, ord("9") + 4)  # ByT5's tokens


def answering(family: str, seed: int = 0, **sizes: Any) -> Any:
    torch.manual_seed(seed)
    if family == "t5":
        sizes = {**T5_SIZES, "num_layers": 2, "num_decoder_layers": 1, "n_positions": TRAIN_LENGTH, **sizes}
        model = tf.T5ForConditionalGeneration(tf.T5Config(**sizes, tie_word_embeddings=False))
    else:
        sizes = {**DECODER_SIZES, "num_hidden_layers": 2, "max_position_embeddings": TRAIN_LENGTH, **sizes}
        model = tf.LlamaForCausalLM(tf.LlamaConfig(**sizes, tie_word_embeddings=False))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and "shared" not in name and "embed" not in name:
            torch.nn.init.normal_(parameter, std=1.0 if "relative" in name else 0.5)
    head = model.get_output_embeddings().weight.data
    some = head[DIGITS][:5].clone()
    # Each of five digits has its opposite among the other five, so that one of them is always far above all other tokens.
    # The others are not zero, because T5 reads its input with the same table.
    head.mul_(0.02)[DIGITS] = torch.cat([some, -some])
    return model.eval()


def answering_briefly(family: str, seed: int = 0) -> Any:
    """As `answering`, but two of the digits end an answer, which takes a third of the time."""
    model = answering(family, seed)
    model.generation_config.eos_token_id = [model.config.eos_token_id, DIGITS.stop - 2, DIGITS.stop - 1]
    return model


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    tf.ByT5Tokenizer().save_pretrained(folder)
    return folder
