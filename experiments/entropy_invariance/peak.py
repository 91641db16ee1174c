"""Theorem 3.4 measured (the paper's Figure 4): where the cosines of queries and keys peak in models trained with CosScale.

    python -m experiments.entropy_invariance.peak --data data --out runs/gau

OUT is the folder of `train`; every model with a CosScale in it is asked. Cosines are taken before the rotation, over all pairs
of tokens of held-out chapters. Writes OUT/peak.json and OUT/peak.md.
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
from numpy.typing import NDArray
from torch import Tensor

from experiments.common.markdown import table
from experiments.common.status import exit_status
from experiments.entropy_invariance.batches import Special
from experiments.entropy_invariance.prose import Chapter, chapters, tokenizer_of
from experiments.entropy_invariance.scoring import beginning
from lengthwise.errors import BadInput, require
from lengthwise.files import write_whole
from lengthwise.methods.similarity.cosscale import peak
from lengthwise.models.load import load

BINS = 400  # of -1 ... 1
SMOOTHED = 9  # bins that a density is averaged over before its peak is looked for
TARGET = 0.05


@dataclass(frozen=True)
class Peak:
    """One model."""

    model: str  # its folder
    scale: float
    theory: float
    measured: float  # over all layers together
    layers: list[float]  # each by itself

    @property
    def off(self) -> float:
        return self.measured / self.theory - 1


def measured(model: Any, documents: Sequence[Chapter], length: int, special: Special) -> NDArray[np.int64]:  # [layers, BINS]
    """How many pairs of tokens have which cosine, layer by layer."""
    units = [layer.attention for layer in model.model.layers]
    counts = torch.zeros(len(units), BINS, dtype=torch.float64)

    def watch(at: int) -> Any:
        def hook(unit: Any, args: tuple[Tensor, ...]) -> None:
            shared = torch.nn.functional.silu(unit.inward(args[0]))[..., -unit.config.head_dim :]
            query, key = (torch.nn.functional.normalize(shared * gamma, dim=-1) for gamma in (unit.gamma_q, unit.gamma_k))
            counts[at] += torch.histc((query @ key.transpose(-1, -2)).float().cpu(), BINS, -1, 1).double()

        return hook

    hooks = [unit.register_forward_pre_hook(watch(at)) for at, unit in enumerate(units)]
    try:
        with torch.inference_mode():
            for document in documents:
                model.model(torch.from_numpy(beginning(document, length, special))[None].to(model.device))
    finally:
        for hook in hooks:
            hook.remove()
    return counts.long().numpy()


def top(counts: NDArray[np.int64]) -> float:
    """The cosine at which a histogram, smoothed, is highest."""
    smooth = np.convolve(counts, np.ones(SMOOTHED), "same")
    return float(-1 + 2 * (smooth.argmax() + 0.5) / BINS)


def run(data: Path, out: Path, length: int = 1024, documents: int = 10, device: str | None = None) -> str:
    found = [folder for folder in sorted(out.glob("*/export/config.json")) if json.loads(folder.read_text()).get("cos_scale")]
    if not found:
        raise BadInput(f"no model in {out} is trained with CosScale; train one with --cos-scale")
    held = [one for one in chapters(data, tokenizer_of(data)) if one.held_out and len(one.tokens) >= length - 2]
    require(bool(held), f"no held-out chapter has {length} tokens; ask for a smaller --length")
    peaks = []
    for config in found:
        model, tokenizer = load(str(config.parent), device=device)
        counts = measured(model, held[:documents], length, Special.of(tokenizer))
        scale, layers = float(model.config.cos_scale), [top(row) for row in counts]
        theory = peak(scale, model.config.head_dim)
        peaks.append(Peak(config.parent.parent.name, scale, theory, top(counts.sum(0)), layers))
    return write(out, sorted(peaks, key=lambda one: (one.scale, one.model)), length)


def write(out: Path, peaks: Sequence[Peak], length: int) -> str:
    rows = [
        [
            one.model,
            f"{one.scale:g}",
            f"{one.theory:.3f}",
            f"{one.measured:.3f}",
            f"{one.off:+.1%}",
            " ".join(f"{x:.2f}" for x in one.layers),
        ]
        for one in peaks
    ]
    within = sum(abs(one.off) <= TARGET for one in peaks)
    text = "\n\n".join(
        [
            "# Theorem 3.4: the peak of the cosines",
            f"Cosines of queries and keys before the rotation, {length:,} tokens. {within} of {len(peaks)} models peak within "
            f"{TARGET:.0%} of the theorem.",
            table(["model", "CosScale", "theorem", "measured", "off by", "layer by layer"], rows),
        ]
    )
    write_whole(out / "peak.json", json.dumps([asdict(one) for one in peaks], indent=1) + "\n")
    write_whole(out / "peak.md", text + "\n")
    return text


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
