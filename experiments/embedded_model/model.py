"""The model: a stock T5 of at most 8 M parameters, trained with scaled queries (experiments/common/scaled_queries.py).

Training also asks the encoder alone (`Reader`, which the export leaves out). At its last token it must know the answer's first
tokens: that makes the encoder's own attention do the finding, and this is the attention whose temperature lengthwise sets. And
half-way up, the digits of a line must know the line's name, as the last token must know the name asked for: two things that
attention can then compare. Without this the matching of names was not learnt in 6,896 steps.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from experiments.common import scaled_queries

MOST_PARAMETERS, MOST_BYTES = 8_000_000, 16_000_000  # of what ships
READER = "reader"
READ = 6  # tokens of an answer that the encoder's last token must know


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


class Reader(nn.Module):
    """What the encoder's states must tell, through the model's own embedding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.answer_parts = nn.Linear(width, READ * width, bias=False)
        self.name_parts = nn.Linear(width, 4 * width, bias=False)

    def answer(self, last: Tensor, embedding: Tensor) -> Tensor:  # [examples, width] -> [examples, READ, vocabulary]
        return self._tokens(self.answer_parts(last), embedding)

    def name(self, states: Tensor, embedding: Tensor) -> Tensor:  # [places, width] -> [places, 4, vocabulary]
        return self._tokens(self.name_parts(F.rms_norm(states, states.shape[-1:])), embedding)

    def _tokens(self, parts: Tensor, embedding: Tensor) -> Tensor:
        width = embedding.shape[1]
        return F.linear(parts.unflatten(-1, (-1, width)) * width**-0.5, embedding)


class Halfway:
    """Keeps the states in the middle of the encoder, those of its last forward."""

    states: Tensor  # [examples, length, width]

    def __init__(self, model: T5ForConditionalGeneration) -> None:
        block = model.encoder.block[len(model.encoder.block) // 2 - 1]
        block.register_forward_hook(self._keep)

    def _keep(self, _: nn.Module, __: object, out: Tensor | tuple[Tensor, ...]) -> None:
        self.states = out[0] if isinstance(out, tuple) else out


def build(settings: T5Config, seed: int, attention: str = "sdpa") -> T5ForConditionalGeneration:
    """A new model for training, with its reader."""
    model = scaled_queries.build(settings, seed, attention)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(
            f"the model has {parameters:,} parameters, more than the {MOST_PARAMETERS:,} that ship with the package"
        )
    model.add_module(READER, Reader(settings.d_model))
    return model


def stock_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the plain T5 that computes the same."""
    weights = scaled_queries.stock_weights(model)
    return {name: weight for name, weight in weights.items() if not name.startswith(f"{READER}.")}


def stock(model: T5ForConditionalGeneration) -> T5ForConditionalGeneration:
    """A plain T5 that computes the same, on the CPU in float32."""
    return scaled_queries.stock(model.config, stock_weights(model))
