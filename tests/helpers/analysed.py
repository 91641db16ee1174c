"""Analyses made up: no model is read."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from lengthwise.analysis.measurements import dispersal
from lengthwise.analysis.records import Analysis, AtLength, Sight, Temperatures

LENGTHS = (512, 1024, 4096)
LAYERS, HEADS = 2, 3


def at(length: int, **changes: Any) -> AtLength:
    """Gaussian logits of sigma 1, attention that spreads with the length."""
    ranks = list(range(0, length, max(1, length // 32)))
    quantiles = [NormalDist().inv_cdf(1 - (rank + 0.5) / length) for rank in ranks]
    heads = [[(0.1 + 0.1 * layer + 0.05 * head) * 512 / length for head in range(HEADS)] for layer in range(LAYERS)]
    told: dict[str, Any] = {
        "sequences": 1,
        "p_max": heads,
        "entropy": [[math.log(length) - 2 * value for value in layer] for layer in heads],
        "l_max": [[3.0] * HEADS for _ in range(LAYERS)],
        "keys": length,
        "logit_mean": -1.0,
        "sigma": 1.0,
        "top": 2.5,
        "top_p": 0.1,
        "qq_r": 0.99,
        "ranks": ranks,
        "quantiles": quantiles,
        "logits": [value - 1.0 for value in quantiles],
        "head_sigma": [1.0] * HEADS,
        "head_mean": [0.0] * HEADS,
        "head_qq_r": [0.98] * HEADS,
        "head_logits": [[value * (1 + 0.1 * head) for value in quantiles] for head in range(HEADS)],
    }
    return AtLength(length=length, **{**told, **changes})


def taus(length: int, **changes: Any) -> Temperatures:
    law = math.log(512) / math.log(length)
    told: dict[str, Any] = {"proposition_1": law - 0.05, "proposition_2": law - 0.2, "pmax": law - 0.02, "entropy": law - 0.1}
    return Temperatures(length=length, log_law=law, **{"why": {}, **told, **changes})


def sighted(head: int, near: float, layer: int = 1) -> Sight:
    return Sight(layer, head, near, 8 * near, [-abs(d) / (10 * near) for d in range(-16, 17)])


def analysis(**changes: Any) -> Analysis:
    lengths = tuple(at(n) for n in LENGTHS)
    told: dict[str, Any] = {
        "model": {"family": "t5", "name": "made-up", "layers": LAYERS, "heads": HEADS, "key_size": 8, "weights": "0" * 16},
        "settings": {"train_length": 512, "text": "shipped prose", "sequences": 1, "seed": 0, "dtype": "float32"},
        "made_with": {"lengthwise": "0.1.0", "device": "cpu"},
        "lengths": lengths,
        "temperatures": tuple(taus(n) for n in LENGTHS),
        "heads": tuple(dispersal(lengths[0], lengths[-1])),
        "sights": (sighted(2, 4.0), sighted(3, 20.0), sighted(1, 90.0)),
    }
    return Analysis(**{**told, **changes})
