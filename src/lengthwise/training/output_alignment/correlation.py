"""Rank correlation of a measure with quality, over models.

The coefficients printed below the paper's Table 1 are Spearman's: of its printed columns .673, -.559, .882 and -.955 come out,
printed as .67, -.59 (a slip), .88 and -.95.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lengthwise.errors import require


def spearman(measure: Sequence[float], quality: Sequence[float]) -> float:
    """Spearman's coefficient of two columns with a row a model; equal values share the mean of their ranks."""
    from scipy.stats import spearmanr

    require(len(measure) == len(quality), f"columns of {len(measure)} and {len(quality)} values are not of the same models")
    require(len(measure) >= 3, f"{len(measure)} models have no correlation to speak of; give at least 3")
    require(bool(np.isfinite([*measure, *quality]).all()), "both columns must be finite numbers; leave failed models out")
    for name, column in (("first", measure), ("second", quality)):
        require(len(set(column)) > 1, f"the {name} column is {column[0]} throughout; ranks need values that differ")
    return float(spearmanr(measure, quality).statistic)
