"""The model: a stock T5 of at most 8 M parameters, trained with its queries at a scale that Adam can move.

T5 has no 1/sqrt(d) in its attention and starts q that much smaller instead. Adam's steps do not know that: at rates that suit
all other weights they throw q about, and nothing is learnt. So while training

    q = (W x) / sqrt(d_kv),  W as large as the other projections,

and `stock_weights` puts the factor into W. The export differs by that product's rounding only.

Training also asks the encoder alone (`Reader`, which the export leaves out). At its last token it must know the answer's first
tokens: that makes the encoder's own attention do the finding, and this is the attention whose temperature lengthwise sets. And
half-way up, the digits of a line must know the line's name, as the last token must know the name asked for: two things that
attention can then compare. Without this the matching of names was not learnt in 6,896 steps.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention

MOST_PARAMETERS = 8_000_000
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


class ScaledLinear(nn.Linear):
    """A projection whose output is multiplied by a fixed factor."""

    scale: float

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return F.linear(input, self.weight) * self.scale


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
    """A new model for training; its queries are ScaledLinear, with T5's own size at the start."""
    torch.manual_seed(seed)
    model = T5ForConditionalGeneration._from_config(settings, attn_implementation=attention)
    for module in model.modules():
        if isinstance(module, T5Attention):
            module.q = _scaled(module.q, settings.d_kv**-0.5)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(
            f"the model has {parameters:,} parameters, more than the {MOST_PARAMETERS:,} that ship with the package"
        )
    model.add_module(READER, Reader(settings.d_model))
    return model


def _scaled(linear: nn.Linear, scale: float) -> ScaledLinear:
    scaled = ScaledLinear(linear.in_features, linear.out_features, bias=False)
    scaled.scale = scale
    with torch.no_grad():
        scaled.weight.copy_(linear.weight / scale)
    return scaled


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once: the embedding that T5 also calls encoder's, decoder's and head's is only `shared`."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def stock_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the plain T5 that computes the same."""
    scales = {f"{name}.weight": module.scale for name, module in model.named_modules() if isinstance(module, ScaledLinear)}
    own = {name: weight for name, weight in weights(model).items() if not name.startswith(f"{READER}.")}
    return {name: weight * scales.get(name, 1.0) for name, weight in own.items()}


def stock(model: T5ForConditionalGeneration) -> T5ForConditionalGeneration:
    """A plain T5 that computes the same, on the CPU in float32."""
    plain = T5ForConditionalGeneration(T5Config(**model.config.to_dict()))
    own = dict(plain.named_parameters())
    with torch.no_grad():
        for name, weight in stock_weights(model).items():
            own[name].copy_(weight)
    return plain
