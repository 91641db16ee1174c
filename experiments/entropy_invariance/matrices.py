"""What Figures 5, 6 and 7 show, measured into one small file: matrices of the last layer, pooled to at most 256 x 256.

    python -m experiments.entropy_invariance.matrices --data data --out runs/gau

OUT is the folder of `train`; models that are not there are left out. All see the beginning of the same held-out chapter.
OUT/figures.npz holds, by key:

    5-before-S, 5-after-S   cosines of queries and keys before and after the rotation, models with CosScale S
    6-log-S                 ln of the attention after the softmax;  S is `plain` for the model without CosScale
    6-counts-S              histograms of cosines: before and after the rotation, each bare and weighted by the attention
    7-window, 7-cosine      ln of the attention: S = 16 in a window, S = 128;  -region: a corner of it, unpooled, as it is
    about                   lengths, chapter and region, as JSON

Cosines are pooled by their mean, attention by its maximum, so that a diagonal stays visible.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, adaptive_max_pool2d, normalize

import lengthwise as lw
from experiments._lib.command import exit_status
from experiments.entropy_invariance.batches import Special
from experiments.entropy_invariance.configuration import Configuration
from experiments.entropy_invariance.cosines import before_rotation, histogram
from experiments.entropy_invariance.paper import SCALE, SCALES, WINDOW_SCALE
from experiments.entropy_invariance.prose import Chapter, chapters, tokenizer_of
from experiments.entropy_invariance.scoring import beginning
from lengthwise.attention import Equation, RowStatistics
from lengthwise.attention.reference import logits
from lengthwise.errors import BadInput, require
from lengthwise.models.load import load

FILE = "figures.npz"
SIDE = 256
LEAST = -40.0  # ln of what counts as no attention
PLAIN = "plain"
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Sizes:
    """Tokens of the inputs of each figure; Figure 7's region is [first, last)."""

    figure_5: int = 1024
    figure_6: int = 512
    figure_7: int = 4096
    region: tuple[int, int] = (3516, 3536)

    @property
    def longest(self) -> int:
        return max(self.figure_5, self.figure_6, self.figure_7)


@dataclass(frozen=True)
class Matrices:
    """Of the last layer and one head, [tokens, tokens] each."""

    before: Tensor  # cosines
    after: Tensor  # cosines, rotated
    attention: Tensor  # 0 where a row does not see


class LastLayer:
    """Keeps what the last layer solves."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.equation: Equation | None = None

    def before(self, layer: int, equation: Equation) -> Equation:
        if layer == self.last:
            self.equation = equation
        return equation

    def after(self, layer: int, equation: Equation, rows: RowStatistics) -> None:
        pass


@torch.inference_mode()
def matrices(model: Any, ids: NDArray[np.int64], method: str = "none") -> Matrices:
    units = [layer.attention for layer in model.model.layers]
    cosines: list[Tensor] = []
    hook = units[-1].register_forward_pre_hook(lambda unit, args: cosines.append(before_rotation(unit, args[0])))
    observer = LastLayer(len(units) - 1)
    try:
        with lw.extend(model, method, observer=observer):
            model.model(torch.from_numpy(ids)[None].to(model.device))
    finally:
        hook.remove()
    assert observer.equation is not None
    after = normalize(observer.equation.query, dim=-1) @ normalize(observer.equation.key, dim=-1).transpose(-1, -2)
    hidden = ~observer.equation.visible.mask()[:, None]
    scores = logits(observer.equation).masked_fill(hidden, -torch.inf)
    return Matrices(cosines[0][0], after[0, 0], scores.softmax(-1)[0, 0])


def pooled(matrix: Tensor, largest: bool) -> NDArray[np.float16]:  # at most [SIDE, SIDE]
    pool = adaptive_max_pool2d if largest else adaptive_avg_pool2d
    small = pool(matrix[None].float(), min(SIDE, len(matrix)))[0]
    return np.asarray(small.cpu().numpy(), np.float16)


def logarithm(attention: Tensor) -> NDArray[np.float16]:
    return pooled(attention.double().log().clamp_min(LEAST), largest=True)


def figure_5(model: Any, ids: NDArray[np.int64], name: str) -> Arrays:
    found = matrices(model, ids)
    return {f"5-{kind}-{name}": pooled(getattr(found, kind), largest=False) for kind in ("before", "after")}


def figure_6(model: Any, ids: NDArray[np.int64], name: str) -> Arrays:
    found = matrices(model, ids)
    counts = [histogram(cosines, weights) for cosines in (found.before, found.after) for weights in (None, found.attention)]
    return {f"6-log-{name}": logarithm(found.attention), f"6-counts-{name}": np.stack(counts).astype(np.float32)}


def figure_7(model: Any, ids: NDArray[np.int64], name: str, method: str, region: tuple[int, int]) -> Arrays:
    attention = matrices(model, ids, method).attention
    part = attention[slice(*region), slice(*region)]
    return {f"7-{name}": logarithm(attention), f"7-{name}-region": np.asarray(part.float().cpu().numpy())}


def run(data: Path, out: Path, sizes: Sizes | None = None, device: str | None = None) -> list[str]:
    """The keys of what is written."""
    sizes = sizes or Sizes()
    chapter = _chapter(data, sizes.longest)
    arrays: Arrays = {"about": np.array(json.dumps({**asdict(sizes), "chapter": chapter.name}))}
    for scale in (None, *SCALES):
        export = out / Configuration(scale).name / "export"
        if not (export / "config.json").is_file():
            print(f"{export.parent.name} is not trained in {out}: left out", flush=True)
            continue
        model, tokenizer = load(str(export), device=device)
        arrays |= _of_model(model, chapter, Special.of(tokenizer), scale, sizes)
        print(f"{export.parent.name}: measured", flush=True)
    if len(arrays) == 1:
        raise BadInput(f"no model of these figures is trained in {out}; train --cos-scale none 128 first")
    np.savez_compressed(out / FILE, **arrays)
    return list(arrays)


def _of_model(model: Any, chapter: Chapter, special: Special, scale: float | None, sizes: Sizes) -> Arrays:
    name = PLAIN if scale is None else f"{scale:g}"
    first = figure_6(model, beginning(chapter, sizes.figure_6, special), name)
    if scale is None:
        return first
    arrays = first | figure_5(model, beginning(chapter, sizes.figure_5, special), name)
    seventh = {WINDOW_SCALE: ("window", "window"), SCALE: ("cosine", "none")}
    if scale in seventh:
        arrays |= figure_7(model, beginning(chapter, sizes.figure_7, special), *seventh[scale], sizes.region)
    return arrays


def _chapter(data: Path, tokens: int) -> Chapter:
    held = [one for one in chapters(data, tokenizer_of(data)) if one.held_out and len(one.tokens) >= tokens - 2]
    require(bool(held), f"no held-out chapter has {tokens} tokens; add longer texts to {data / 'zh'}")
    return held[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with zh/*.txt and gau_vocab/vocab.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder of the trained models")
    parser.add_argument("--device", help="cuda where there is one")
    given: dict[str, Any] = vars(parser.parse_args())
    return exit_status(lambda: run(**given))


if __name__ == "__main__":
    sys.exit(main())
