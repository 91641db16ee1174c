"""Theorem 3.4 measured (the paper's Figure 4): where the cosines of queries and keys peak in models trained with CosScale.

    eta* = argmax of e^(S eta) (1 - eta^2)^((d-3)/2)

    python -m experiments.entropy_invariance.peak --data data --out runs/gau

The theorem's maximum is that of cosines on a uniform sphere, each weighted by its attention before the softmax, e^(S eta); the
paper sets it beside the peak of the bare cosines. So both are measured, before the rotation, over all pairs of tokens of
held-out chapters; and once more with queries and keys that are uniform on a sphere, which is the theorem itself: from the exact
density on the same bins, and from as many random pairs, of which none reaches the peak of a large S.

OUT is the folder of `train`; every base model with a CosScale in it is asked. Writes OUT/peak.md, peak.json, and the histograms
as peak.npz.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments._lib.command import exit_status
from experiments._lib.markdown import table
from experiments.entropy_invariance.batches import Special
from experiments.entropy_invariance.configuration import Configuration
from experiments.entropy_invariance.cosines import CENTRES, Array, before_rotation, histogram
from experiments.entropy_invariance.prose import Chapter, chapters, tokenizer_of
from experiments.entropy_invariance.scoring import beginning
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.methods.similarity.cosscale import peak
from lengthwise.models.load import load

SMOOTHED = 61  # bins that a density is averaged over before its peak is looked for
TARGET = 0.05
FEW = 100  # pairs: a weighted peak made by fewer is that of the sample's last cosines
ABOUT = """Cosines of queries and keys before the rotation, {length:,} tokens, all layers together. *Bare* is the peak of the
cosines themselves, *weighted* of the cosines weighted by e^(S cos), which is what the theorem is about. *Pairs* is how many
equally heavy pairs would make the weighted histogram: below {few} its peak only marks the largest cosines there are. Within
{target:.0%} of the theorem: {bare} of {count} bare peaks, {weighted} weighted ones."""
SPHERE = """Queries and keys uniform on a sphere: the exact density on the same bins, and {pairs:,} random pairs."""


@dataclass(frozen=True)
class Found:
    """The two peaks of one histogram."""

    bare: float
    weighted: float
    pairs: float  # how many equally heavy ones the weighted histogram is worth

    @classmethod
    def of(cls, counts: Array, scale: float) -> Found:
        heavy = weighted(counts, scale)
        once = np.divide(heavy, counts, out=np.zeros_like(heavy), where=counts > 0)
        return cls(top(counts), top(heavy), float(heavy.sum() ** 2 / (heavy * once).sum()))


@dataclass(frozen=True)
class Peak:
    """One model."""

    model: str  # its folder
    scale: float
    theory: float
    whole: Found  # all layers together
    layers: list[Found]


@dataclass(frozen=True)
class Sphere:
    """The theorem's own case."""

    scale: float
    theory: float
    exact: float  # weighted peak of the density
    drawn: Found  # of random pairs


def measured(model: Any, documents: Sequence[Chapter], length: int, special: Special) -> Array:  # [layers, BINS]
    """How many pairs of tokens have which cosine, layer by layer."""
    units = [layer.attention for layer in model.model.layers]
    counts = np.zeros((len(units), len(CENTRES)))

    def watch(at: int) -> Any:
        def hook(unit: Any, args: tuple[Tensor, ...]) -> None:
            counts[at] += histogram(before_rotation(unit, args[0]))

        return hook

    hooks = [unit.register_forward_pre_hook(watch(at)) for at, unit in enumerate(units)]
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
    """Of the cosine of two directions in `size` dimensions, up to a factor."""
    return np.exp((size - 3) / 2 * np.log1p(-(CENTRES**2)))


def uniform_pairs(size: int, documents: int, length: int, seed: int = 0) -> Array:  # [BINS]
    """As many pairs as are measured: every query of a document with every key."""
    draws, counts = torch.Generator().manual_seed(seed), np.zeros(len(CENTRES))
    for _ in range(documents):
        query, key = (torch.nn.functional.normalize(torch.randn(length, size, generator=draws), dim=-1) for _ in range(2))
        counts += histogram(query @ key.T)
    return counts


def run(data: Path, out: Path, length: int = 1024, documents: int = 10, device: str | None = None) -> str:
    found = [file for file in sorted(out.glob("*/export/config.json")) if _is_base(file)]
    if not found:
        raise BadInput(f"no model in {out} is trained with CosScale; train one with --cos-scale")
    held = [one for one in chapters(data, tokenizer_of(data)) if one.held_out and len(one.tokens) >= length - 2]
    require(bool(held), f"no held-out chapter has {length} tokens; ask for a smaller --length")
    histograms, peaks, size = {}, [], 0
    for file in found:
        name = file.parent.parent.name
        model, tokenizer = load(str(file.parent), device=device)
        counts = measured(model, held[:documents], length, Special.of(tokenizer))
        scale, size = float(model.config.cos_scale), int(model.config.head_dim)
        layers = [Found.of(row, scale) for row in counts]
        peaks.append(Peak(name, scale, peak(scale, size), Found.of(counts.sum(0), scale), layers))
        histograms[name] = counts.astype(np.int32)
    drawn = uniform_pairs(size, len(held[:documents]), length)
    np.savez_compressed(out / "peak.npz", sphere=drawn.astype(np.int32), **histograms)
    peaks.sort(key=lambda one: (one.scale, one.model))
    spheres = [
        Sphere(s, peak(s, size), top(weighted(uniform_density(size), s)), Found.of(drawn, s))
        for s in dict.fromkeys(one.scale for one in peaks)
    ]
    facts = {"length": length, "key_size": size, "pairs": int(drawn.sum())}
    return write(out, peaks, spheres, facts)


def _is_base(config: Path) -> bool:
    """Tuned models would need the method they were tuned under."""
    scale = json.loads(config.read_text()).get("cos_scale")
    return scale is not None and config.parent.parent.name == Configuration(scale).name


def write(out: Path, peaks: Sequence[Peak], spheres: Sequence[Sphere], facts: dict[str, int]) -> str:
    bare, heavy = (
        sum(abs(getattr(one.whole, name) / one.theory - 1) <= TARGET for one in peaks) for name in ("bare", "weighted")
    )
    counts = {"bare": bare, "weighted": heavy, "count": len(peaks)}
    about = ABOUT.format(length=facts["length"], few=FEW, target=TARGET, **counts)
    parts = ["# Theorem 3.4: the peak of the cosines", about, _models(peaks), "## Layer by layer", _layers(peaks)]
    parts += ["## The theorem itself", SPHERE.format(pairs=facts["pairs"]), _spheres(spheres)]
    text = "\n\n".join(parts)
    document = {**facts, "models": [asdict(one) for one in peaks], "spheres": [asdict(one) for one in spheres]}
    write_whole(out / "peak.json", json.dumps(document, indent=1) + "\n")
    write_whole(out / "peak.md", text + "\n")
    return text


def _models(peaks: Sequence[Peak]) -> str:
    rows = [
        [one.model, f"{one.scale:g}", f"{one.theory:.3f}", *_shown(one.whole, one.theory), f"{one.whole.pairs:,.0f}"]
        for one in peaks
    ]
    return table(["model", "CosScale", "theorem", "bare", "off by", "weighted", "off by", "pairs"], rows)


def _layers(peaks: Sequence[Peak]) -> str:
    rows = [
        [one.model, kind, f"{one.theory:.3f}", *(f"{getattr(layer, kind):.3f}" for layer in one.layers)]
        for one in peaks
        for kind in ("bare", "weighted")
    ]
    depth = max(len(one.layers) for one in peaks)
    return table(["model", "peak", "theorem", *(f"layer {at}" for at in range(depth))], rows)


def _spheres(spheres: Sequence[Sphere]) -> str:
    rows = [
        [
            f"{one.scale:g}",
            f"{one.theory:.3f}",
            f"{one.exact:.3f}",
            f"{one.exact / one.theory - 1:+.1%}",
            f"{one.drawn.weighted:.3f}",
            f"{one.drawn.weighted / one.theory - 1:+.1%}",
            f"{one.drawn.pairs:,.0f}",
        ]
        for one in spheres
    ]
    return table(["CosScale", "theorem", "exact", "off by", "random pairs", "off by", "pairs"], rows)


def _shown(found: Found, theory: float) -> list[str]:
    return [word for value in (found.bare, found.weighted) for word in (f"{value:.3f}", f"{value / theory - 1:+.1%}")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with zh/*.txt and gau_vocab/vocab.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder of the trained models")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--device", help="cuda where there is one")
    given: dict[str, Any] = vars(parser.parse_args())
    return exit_status(lambda: print(run(**given)))


if __name__ == "__main__":
    sys.exit(main())
