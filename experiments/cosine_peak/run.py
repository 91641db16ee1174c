"""Theorem 3.4 measured (Entropy Invariance, Figure 4): where the cosines of queries and keys peak in models with CosScale.

    eta* = argmax of e^(S eta) (1 - eta^2)^((d-3)/2)

    python -m experiments.cosine_peak.run --data DATA --out OUT

The maximum is that of cosines on a sphere, weighted by attention before the softmax; the paper sets it beside the peak of bare
cosines. Both are measured, before the rotation, over all pairs of tokens of held-out chapters, and on a uniform sphere.

OUT is the folder of experiments.entropy_invariance.train; every base model with a CosScale in it is asked. Writes OUT/peak.json
and its page, and the histograms as peak.npz.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from experiments._lib.chinese_novels import Chapter, Special, beginning, held_out
from experiments._lib.command import main, option
from experiments._lib.gau_cosines import before_rotation
from experiments._lib.results import write_json
from experiments.cosine_peak import page
from lengthwise.errors import require
from lengthwise.methods.similarity.cosscale import peak
from lengthwise.models.load import load

SMOOTHED = 61  # bins that a density is averaged over before its peak is looked for
Array = NDArray[np.float64]
BINS = 4000  # of -1 ... 1: so fine that e^(600 cos) hardly changes within one
CENTRES = (np.arange(BINS) + 0.5) * 2 / BINS - 1


def histogram(cosines: Tensor, weights: Tensor | None = None) -> Array:  # [BINS]
    """How many of them are in which bin, or how much they weigh."""
    # Rounding must not carry a cosine of 1 out of the last bin
    at = ((cosines.flatten().double() + 1) * (BINS / 2)).long().clamp(0, BINS - 1)
    counted = torch.bincount(at, None if weights is None else weights.flatten().double(), minlength=BINS)
    return np.asarray(counted.double().cpu().numpy())


@dataclass(frozen=True, kw_only=True)
class Options:
    """One call."""

    data: Path = option(help="folder with zh/*.txt and gau_vocab/vocab.txt")
    out: Path = option(help="folder of the trained models")
    length: int = option(1024, "tokens of an input")
    documents: int = option(10, "held-out chapters")
    device: str | None = option(None, "cuda where there is one")


def peaks_of(counts: Array, scale: float) -> dict[str, float]:
    """The bare and the weighted peak of a histogram, and how many equally heavy pairs the weighted one is worth."""
    heavy = weighted(counts, scale)
    once = np.divide(heavy, counts, out=np.zeros_like(heavy), where=counts > 0)
    return {"bare": top(counts), "weighted": top(heavy), "pairs": float(heavy.sum() ** 2 / (heavy * once).sum())}


def measured(model: Any, documents: Sequence[Chapter], length: int, special: Special) -> Array:  # [layers, BINS]
    """How many pairs of tokens have which cosine, layer by layer."""
    units = [layer.attention for layer in model.model.layers]
    counts = np.zeros((len(units), len(CENTRES)))

    def count(unit: Any, args: tuple[Tensor, ...]) -> None:
        counts[units.index(unit)] += histogram(before_rotation(unit, args[0]))

    hooks = [unit.register_forward_pre_hook(count) for unit in units]
    try:
        with torch.inference_mode():
            for document in documents:
                model.model(torch.from_numpy(beginning(document, length, special))[None].to(model.device))
    finally:
        for hook in hooks:
            hook.remove()
    return counts


def weighted(counts: Array, scale: float) -> Array:
    """Each bin times e^(S eta), up to a factor; by logarithms, since e^600 squared is no number."""
    with np.errstate(divide="ignore"):
        logs = np.log(counts) + scale * CENTRES
    return np.exp(logs - logs.max())


def top(counts: Array) -> float:
    """The cosine at which a histogram, smoothed, is highest."""
    near = np.ones(SMOOTHED)
    # The mean of the neighbours that there are: the ends of the range have fewer
    smooth = np.convolve(counts, near, "same") / np.convolve(np.ones_like(counts), near, "same")
    return float(CENTRES[smooth.argmax()])


def uniform_density(size: int) -> Array:  # [BINS]
    """The density of the cosine of two directions in `size` dimensions, up to a factor."""
    return np.exp((size - 3) / 2 * np.log1p(-(CENTRES**2)))


def uniform_pairs(size: int, documents: int, length: int, seed: int = 0) -> Array:  # [BINS]
    """A histogram of as many random pairs as are measured: every query of a document with every key."""
    draws, counts = torch.Generator().manual_seed(seed), np.zeros(len(CENTRES))
    for _ in range(documents):
        query, key = (normalize(torch.randn(length, size, generator=draws), dim=-1) for _ in range(2))
        counts += histogram(query @ key.T)
    return counts


def run(options: Options) -> dict[str, Any]:
    exports = [file for file in sorted(options.out.glob("*/export/config.json")) if _is_base(file)]
    require(bool(exports), f"no model in {options.out} is trained with CosScale; train one with --cos-scale")
    documents = held_out(options.data, options.length)[: options.documents]
    histograms, models, size = {}, [], 0
    for file in exports:
        name = file.parent.parent.name
        model, tokenizer = load(str(file.parent), device=options.device)
        counts = measured(model, documents, options.length, Special.of(tokenizer))
        scale, size = float(model.config.cos_scale), int(model.config.head_dim)
        about = {"model": name, "scale": scale, "theory": peak(scale, size)}
        models.append({**about, "whole": peaks_of(counts.sum(0), scale), "layers": [peaks_of(row, scale) for row in counts]})
        histograms[name] = counts.astype(np.int32)
    drawn = uniform_pairs(size, len(documents), options.length)
    np.savez_compressed(options.out / "peak.npz", sphere=drawn.astype(np.int32), **histograms)
    models.sort(key=lambda model: (model["scale"], model["model"]))
    spheres = []
    for scale in dict.fromkeys(model["scale"] for model in models):
        exact = top(weighted(uniform_density(size), scale))
        spheres.append({"scale": scale, "theory": peak(scale, size), "exact": exact, "drawn": peaks_of(drawn, scale)})
    facts = {"length": options.length, "key_size": size, "pairs": int(drawn.sum())}
    document = {**facts, "models": models, "spheres": spheres}
    write_json(options.out / page.RESULTS, document)
    page.write_pages(options.out, options.out)
    return document


def _is_base(config: Path) -> bool:
    """Tuned models would need the method they were tuned under."""
    scale = json.loads(config.read_text()).get("cos_scale")
    return scale is not None and config.parent.parent.name == f"rope-cos{scale:g}"


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))
