"""A T5 trained with its queries at a scale that Adam can move.

T5 has no 1/sqrt(d) in its attention and starts q that much smaller instead. Adam's steps do not know that: at rates that suit
all other weights they throw q about, and nothing is learnt. So while training

    q = (W x) / sqrt(d_kv),  W as large as the other projections,

and `stock_weights` puts the factor into W. The export differs by that product's rounding only.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention


class ScaledLinear(nn.Linear):
    """A projection whose output is multiplied by a fixed factor."""

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
