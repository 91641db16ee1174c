"""Small models with random weights, made in memory, on which methods are tried (check.py).

An encoder-decoder with a bias (T5), a decoder whose heads share keys (Llama), and one that rotates a part of every key
(GPT-NeoX).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf

TRAINED = 64  # tokens
WORDS = 384
LAYERS = 2
T5 = {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "n_positions": TRAINED}
DECODER = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "max_position_embeddings": TRAINED,
}
SMALL_MODELS: dict[str, Callable[[int], Any]] = {
    "t5": lambda n: tf.T5ForConditionalGeneration(tf.T5Config(**T5, num_layers=n, decoder_start_token_id=0)),
    "llama": lambda n: tf.LlamaForCausalLM(tf.LlamaConfig(**DECODER, num_hidden_layers=n, num_key_value_heads=2)),
    "gpt_neox": lambda n: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**DECODER, num_hidden_layers=n, rotary_pct=0.5)),
}


def small_model(name: str, layers: int = LAYERS) -> Any:
    """A model with queries and biases large enough for sharp attention; whatever the caller draws stays the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SMALL_MODELS[name](layers).eval()
        for key, parameter in model.named_parameters():
            if parameter.dim() == 2:
                bias, query = "relative_attention_bias" in key, any(part in key for part in (".q.", "q_proj", "query"))
                torch.nn.init.normal_(parameter, std=1.0 if bias else 0.5 if query else 0.05)
    return model
