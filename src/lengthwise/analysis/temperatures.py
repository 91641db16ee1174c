"""The temperature at every length by five estimates (Chi et al., Figures 3, 4 and 6 to 9).

Propositions 1 and 2 take P_max and sigma from the sorted, averaged logit vector of the first layer, sigma at every length anew;
Algorithm 1 is measured on all layers; the log law knows the length alone. Where an estimate has no temperature, or none that
can be believed, it is said why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from lengthwise.analysis.records import Aligned, AtLength, Temperatures
from lengthwise.common.laws import log_law
from lengthwise.errors import BadInput
from lengthwise.methods.temperature.aligned import MEASURED
from lengthwise.methods.temperature.proposition1 import proposition1
from lengthwise.methods.temperature.proposition2 import proposition2

NEAR_ONE = 1e-6  # how near to 1 a temperature at the training length has to be


def temperatures(
    train_length: int, lengths: Sequence[AtLength], aligned: Mapping[tuple[int, str], Aligned]
) -> list[Temperatures]:
    """Every estimate at every length from the training length on; empty while that has not been measured."""
    trained = next((measured for measured in lengths if measured.length == train_length), None)
    if trained is None:
        return []
    return [_estimates(trained, measured, aligned) for measured in lengths if measured.length >= train_length]


def _estimates(trained: AtLength, measured: AtLength, aligned: Mapping[tuple[int, str], Aligned]) -> Temperatures:
    why: dict[str, str] = {}
    first: float | None = None
    try:
        first = proposition1(trained.keys, measured.keys, trained.top_p, trained.sigma, measured.sigma)
    except BadInput as error:
        why["proposition_1"] = str(error)
    if measured is trained and first is not None and abs(first - 1) > NEAR_ONE:
        why["proposition_1"] = _not_one(trained, first)
    second = None
    if measured.sigma > 0:
        second = proposition2(trained.keys, measured.keys, trained.sigma, measured.sigma)
    else:
        why["proposition_2"] = "all logits of the first layer are equal: no temperature changes their entropy"
    solved: dict[str, float | None] = {}
    for statistic in MEASURED:
        alignment = (
            Aligned(measured.length, statistic, 1.0) if measured is trained else aligned.get((measured.length, statistic))
        )
        solved[statistic] = None if alignment is None else alignment.tau
        if alignment is None or alignment.why:
            why[statistic] = "not calibrated yet" if alignment is None else alignment.why
    law = log_law(trained.length, measured.length)
    return Temperatures(measured.length, first, second, solved["pmax"], solved["entropy"], law, why)


def _not_one(trained: AtLength, root: float) -> str:
    half, room = trained.sigma**2 / 2, math.log(trained.keys * trained.top_p)
    return (
        f"1 is a root of Proposition 1's quadratic at the training length, but {root:.3f} is the larger one, because "
        f"sigma^2/2 = {half:.3f} is above ln(n P_max) = {room:.3f}: these logits are not as Gaussian as it assumes, and its "
        "temperatures are not to be trusted"
    )
