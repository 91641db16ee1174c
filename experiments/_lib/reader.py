"""What a T5 has while it is trained here and its export has not: scaled queries, and what the encoder must tell by itself.

    loss of an example = answer + encoder * read + binding * bound

`read` asks the encoder's last token for the first tokens of the answer: that makes the encoder's own attention do the finding,
and this is the attention whose temperature lengthwise sets. `bound` asks, half-way up, tokens that belong to a name for that
name: the digits of a line for the line's name, the input's end for the name asked for; two things that attention can then
compare. Without this the embedded model did not learn to match names in 6,896 steps (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention

from experiments._lib.batches import IGNORED

READER = "reader"
READ = 6  # tokens of an answer that the encoder's last token must know


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


def add(model: T5ForConditionalGeneration) -> T5ForConditionalGeneration:
    model.add_module(READER, Reader(model.config.d_model))
    return model


def left_out(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights without the reader's."""
    return {name: weight for name, weight in weights.items() if not name.startswith(f"{READER}.")}


def losses(
    model: Any, halfway: Halfway, inputs: Tensor, labels: Tensor, bound: Tensor, asked: Tensor
) -> tuple[Tensor, Tensor, Tensor]:  # [examples] each
    """Of the answer, of what the last token tells of it, of the names; `asked` says whose answers can be known beforehand."""
    reader, embedding = model.get_submodule(READER), model.get_input_embeddings().weight
    out = teacher_forced(model, inputs, labels)
    each = example_means(token_losses(out.logits, labels), labels)
    answers = labels[:, :READ]
    last = out.encoder_last_hidden_state[torch.arange(len(inputs), device=inputs.device), (inputs != 0).sum(1) - 1]
    read = example_means(token_losses(reader.answer(last, embedding), answers), answers) * asked.float()
    example, place, *names = bound.unbind(1)
    told = reader.name(halfway.states[example, place], embedding)
    named = token_losses(told, torch.stack(names, 1)).mean(1)
    # Each example counts alike, however many of its tokens are bound; bincount would make the GPU wait
    share = torch.zeros_like(each).index_add(0, example, torch.ones_like(named))
    binding = torch.zeros_like(each).index_add(0, example, named / share[example])
    return each, read, binding


def teacher_forced(model: Any, inputs: Tensor, labels: Tensor) -> Any:
    """The model's output for targets that it is told up to each token; padding is token 0, as is the decoder's start."""
    start = torch.zeros_like(labels[:, :1])
    before = torch.cat([start, labels[:, :-1].clamp_min(0)], 1)
    return model(input_ids=inputs, attention_mask=(inputs != 0).long(), decoder_input_ids=before, use_cache=False)


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:  # [examples, target length]
    """Cross-entropy of every target token in float32, 0 where there is none."""
    flat = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return flat.view(labels.shape)


def example_means(losses: Tensor, labels: Tensor) -> Tensor:  # [examples]
    return losses.sum(1) / (labels != IGNORED).sum(1)


class ScaledLinear(nn.Linear):
    """A projection whose output is multiplied by a fixed factor, for queries at a scale that Adam can move.

    T5 has no 1/sqrt(d) in its attention and starts q that much smaller instead. Adam's steps do not know that: at rates that
    suit all other weights they throw q about, and nothing is learnt. So while training q = (W x) / sqrt(d_kv), with W as large
    as the other projections, and `stock_weights` puts the factor into W. The export differs by that product's rounding only.
    """

    scale: float

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return F.linear(input, self.weight) * self.scale


def build(settings: T5Config, seed: int, attention: str = "sdpa") -> T5ForConditionalGeneration:
    """A new model for training; its queries are ScaledLinear, with T5's own size at the start."""
    torch.manual_seed(seed)
    model = T5ForConditionalGeneration._from_config(settings, attn_implementation=attention)
    for module in model.modules():
        if isinstance(module, T5Attention):
            module.q = _scaled(module.q, settings.d_kv**-0.5)
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
    """With the queries' factor in their weights."""
    modules = model.named_modules()
    scales = {f"{name}.weight": module.scale for name, module in modules if isinstance(module, ScaledLinear)}
    return {name: weight * scales.get(name, 1.0) for name, weight in weights(model).items()}


def stock(settings: T5Config, weights: Mapping[str, Tensor]) -> T5ForConditionalGeneration:
    """A plain T5 of these weights, on the CPU in float32."""
    plain = T5ForConditionalGeneration(T5Config(**settings.to_dict()))
    own = dict(plain.named_parameters())
    with torch.no_grad():
        for name, weight in weights.items():
            own[name].copy_(weight)
    return plain
