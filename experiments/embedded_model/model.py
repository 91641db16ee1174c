"""The model: a stock T5 of at most 8 M parameters, trained with scaled queries (experiments/_lib/scaled_queries.py).

Training also asks the encoder alone (experiments/_lib/reader.py), which the export leaves out.
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from experiments._lib import reader, scaled_queries

MOST_PARAMETERS, MOST_BYTES = 8_000_000, 16_000_000  # of what ships


def config(vocabulary: int = 4096, **changes: int) -> T5Config:
    sizes = {"d_model": 256, "d_kv": 48, "num_heads": 4, "d_ff": 1024, "num_layers": 4, "num_decoder_layers": 2, **changes}
    return T5Config(
        vocab_size=vocabulary,
        **sizes,
        n_positions=512,
        dropout_rate=0.0,
        feed_forward_proj="relu",
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )


def build(settings: T5Config, seed: int, attention: str = "sdpa") -> T5ForConditionalGeneration:
    """A new model for training, with its reader."""
    model = scaled_queries.build(settings, seed, attention)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(
            f"the model has {parameters:,} parameters, more than the {MOST_PARAMETERS:,} that ship with the package"
        )
    return reader.add(model)


def stock_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the plain T5 that computes the same."""
    return reader.left_out(scaled_queries.stock_weights(model))


def stock(model: T5ForConditionalGeneration) -> T5ForConditionalGeneration:
    """A plain T5 that computes the same, on the CPU in float32."""
    return scaled_queries.stock(model.config, stock_weights(model))
