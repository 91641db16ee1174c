"""One forward at one length: P_max, entropy and largest logit of every layer and head, and the first layer's logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lengthwise.analysis.gaussian import normal_quantiles, shown_ranks, straightness, top_probability
from lengthwise.analysis.records import AtLength
from lengthwise.analysis.sorted_logits import sorted_mean
from lengthwise.attention import Equation
from lengthwise.calibration.align import AtSharpness
from lengthwise.calibration.measure import Means, refuse_nan, run_stack
from lengthwise.common.progress import ProgressCallback, no_progress
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.extend import extend

LEAST_SHARE = AtSharpness.LEAST_SHARE  # as calibration has it


class Watch(Means):
    """Means over rows that also keep the sorted, averaged logits of the first layer."""

    def __init__(self, layers: int, tick: ProgressCallback = no_progress) -> None:
        super().__init__(layers, LEAST_SHARE, tick)
        self.vectors: Tensor | None = None  # [heads, keys]

    def before(self, layer: int, equation: Equation) -> Equation:
        if layer == 0:
            self.vectors = sorted_mean(equation, LEAST_SHARE).cpu()
        return equation


def at_length(model: nn.Module, anatomy: Anatomy, ids: Tensor, tick: ProgressCallback = no_progress) -> AtLength:
    """Of token ids [sequences, length]."""
    watch = Watch(len(anatomy.layers), tick)
    with extend(model, "none", train_length=anatomy.train_length, observer=watch):
        run_stack(anatomy, ids)
    found = watch.result()
    refuse_nan(anatomy, torch.stack([found.p_max, found.entropy, found.l_max], -1).sum(-1))
    assert watch.vectors is not None
    vector = watch.vectors.mean(0)
    ranks = shown_ranks(len(vector))
    return AtLength(
        length=ids.shape[1],
        sequences=len(ids),
        p_max=found.p_max.tolist(),
        entropy=found.entropy.tolist(),
        l_max=found.l_max.tolist(),
        keys=len(vector),
        logit_mean=float(vector.mean()),
        sigma=float(vector.std(correction=0)),
        top=float(vector[0]),
        top_p=top_probability(vector),
        qq_r=straightness(vector),
        ranks=ranks,
        quantiles=normal_quantiles(len(vector))[ranks].tolist(),
        logits=vector[ranks].tolist(),
        head_sigma=watch.vectors.std(-1, correction=0).tolist(),
        head_mean=watch.vectors.mean(-1).tolist(),
        head_qq_r=[straightness(head) for head in watch.vectors],
        head_logits=watch.vectors[:, ranks].tolist(),
    )
