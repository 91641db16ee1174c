"""The model: a stock T5 of 44 M parameters with gated feed-forward layers, trained with scaled queries."""

from __future__ import annotations

from transformers import T5Config


def config(vocabulary: int = 16384, dropout: float = 0.0, **changes: int) -> T5Config:
    sizes = {"d_model": 512, "d_kv": 64, "num_heads": 8, "d_ff": 1024, "num_layers": 8, "num_decoder_layers": 4, **changes}
    return T5Config(
        vocab_size=vocabulary,
        **sizes,
        n_positions=512,
        dropout_rate=dropout,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
