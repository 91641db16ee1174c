"""A tiny GAU-alpha, and the same model written out in float64, row by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lengthwise.models.gau_alpha import GAUAlphaConfig, GAUAlphaForMaskedLM

TRAIN_LENGTH = 32
SIZES = {
    "vocab_size": 384,
    "hidden_size": 32,
    "intermediate_size": 24,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": TRAIN_LENGTH,
    # Large, so that attention is sharp
    "initializer_range": 0.4,
}


def tiny(seed: int = 0, **choices: Any) -> Any:
    """Queries and keys differ, as they do after training."""
    torch.manual_seed(seed)
    model = GAUAlphaForMaskedLM(GAUAlphaConfig(**{**SIZES, **choices})).eval()
    for layer in model.model.layers:
        torch.nn.init.uniform_(layer.attention.gamma_q, 0.5, 1.5)
        torch.nn.init.uniform_(layer.attention.gamma_k, -1.0, 1.5)
    return model


def ids(length: int, batch: int = 1, seed: int = 0) -> Tensor:
    return torch.randint(3, 384, (batch, length), generator=torch.Generator().manual_seed(seed))


def apart(i: int, j: int) -> float | None:
    return i - j


def by_hand(
    model: Any,
    tokens: Tensor,
    distance: Callable[[int, int], float | None] = apart,
    bias: Callable[[int, int], float] = lambda i, j: 0.0,
    g: float = 1.0,
    segments: list[int] | None = None,
) -> Tensor:
    """Logits of one sequence; `distance(i, j)` from query to key, None where it is not seen, 0 everywhere without rotation."""
    weights = {name: value.double() for name, value in model.state_dict().items()}
    length, size = tokens.shape[1], model.config.head_dim

    def normed(x: Tensor) -> Tensor:
        return x / (x.pow(2).sum(-1, keepdim=True) / x.shape[-1] + 1e-12).sqrt()

    def turned(vector: Tensor, places: list[float]) -> Tensor:
        """Every pair (2i, 2i + 1) as a complex number, turned once for every place."""
        own = torch.tensor([10000.0 ** (-2 * i / size) for i in range(size // 2)], dtype=torch.float64)
        turns = torch.polar(
            torch.ones(len(places), size // 2, dtype=torch.float64), torch.tensor(places)[:, None].double() * own
        )
        return torch.view_as_real(torch.complex(vector[0::2], vector[1::2]) * turns).flatten(1)

    segment = weights["model.embed_segments.weight"][segments or [0] * length]
    hidden = normed(weights["model.embed_tokens.weight"][tokens[0]] + segment)
    for at in range(model.config.num_hidden_layers):
        own = {key: weights[f"model.layers.{at}.attention.{key}"] for key in ("inward.weight", "outward.weight")}
        gamma_q, gamma_k = (weights[f"model.layers.{at}.attention.gamma_{name}"] for name in "qk")
        inner = hidden @ own["inward.weight"].T
        inner = inner / (1 + (-inner).exp())
        u, v, z = inner[:, :24], inner[:, 24:48], inner[:, 48:]
        q, k, scale = z * gamma_q, z * gamma_k, 1 / math.sqrt(size)
        if model.config.cos_scale is not None:
            q, k, scale = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True), model.config.cos_scale
        mixed = torch.zeros_like(v)
        for i in range(length):
            seen = {j: float(d) for j in range(length) if (d := distance(i, j)) is not None}
            keys, added = list(seen), torch.tensor([bias(i, j) for j in seen], dtype=torch.float64)
            rows = g * (scale * (turned(q[i], list(seen.values())) * k[keys]).sum(-1) + added)
            mixed[i] = rows.softmax(0) @ v[keys]
        hidden = normed(hidden + (u * mixed) @ own["outward.weight"].T)
    return (hidden @ weights["model.embed_tokens.weight"].T)[None]
