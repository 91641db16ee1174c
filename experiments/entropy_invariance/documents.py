"""The test documents, chosen as in the paper's appendix A.1, so that few of them stand for all.

Every held-out chapter that is long enough gets a feature, the mean of a model's states over its beginning; principal components
bring it down to two numbers; spectral clustering parts the chapters in two; each part gives test documents in proportion to its
size. The rest of the held-out chapters are for validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.entropy_invariance.prose import Chapter
from lengthwise.errors import BadInput, require

Array = NDArray[np.float64]
CLUSTERS = 2


def chosen(model: Any, chapters: Sequence[Chapter], longest: int, count: int, window: int, seed: int = 0) -> list[Chapter]:
    """`count` held-out chapters of at least `longest` tokens, [CLS] and [SEP] included; in the order of their names."""
    fit = sorted((one for one in chapters if one.held_out and len(one.tokens) >= longest - 2), key=lambda one: one.name)
    require(len(fit) >= count, f"only {len(fit)} held-out chapters have {longest} tokens; ask for fewer than {count} documents")
    if len(fit) == count:
        return fit
    features = np.stack([feature(model, one, longest - 2, window) for one in fit])
    return [fit[at] for at in stratified(clusters(features, seed), count, seed)]


@torch.inference_mode()
def feature(model: Any, chapter: Chapter, tokens: int, window: int) -> Array:  # [hidden size]
    """The mean state of the first tokens, read in windows of the training length."""
    window = min(window, tokens)
    ids = torch.from_numpy(chapter.tokens[: tokens // window * window]).view(-1, window)
    return np.asarray(model.model(ids.to(model.device)).last_hidden_state.double().mean((0, 1)).cpu().numpy())


def clusters(features: Array, seed: int = 0) -> NDArray[np.int64]:  # [documents]
    """Each document's part, 0 or 1, from its two principal components."""
    try:
        from sklearn.cluster import SpectralClustering
        from sklearn.decomposition import PCA
    except ImportError:
        raise BadInput("choosing documents needs scikit-learn: pip install 'lengthwise[experiments]'") from None
    plane = PCA(2, random_state=seed).fit_transform(features)
    # Distances are told by the kernel in units of the plane's own spread
    plane = plane / plane.std()
    return np.asarray(SpectralClustering(CLUSTERS, random_state=seed).fit_predict(plane), np.int64)


def stratified(parts: NDArray[np.int64], count: int, seed: int = 0) -> list[int]:
    """Which documents, sorted: of every part its share of `count`, the largest remainders rounded up, drawn at random."""
    sizes = np.bincount(parts)
    exact = count * sizes / len(parts)
    shares = np.floor(exact).astype(int)
    for at in np.argsort(shares - exact, kind="stable")[: count - shares.sum()]:
        shares[at] += 1
    randomness = np.random.default_rng(seed)
    taken = [randomness.choice(np.flatnonzero(parts == at), share, replace=False) for at, share in enumerate(shares)]
    return sorted(int(one) for part in taken for one in part)
