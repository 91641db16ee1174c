"""What a row of attention weights looks like, without keeping the row.

    lse     = ln sum_j exp(l_j)
    P_max   = max_j p_j = exp(l_max - lse)
    entropy = lse - sum_j p_j l_j                                   in nats

They follow from three running sums of a flash loop. P_max is kept and not l_max: calibrations read it, and a loop
has it without a difference of two numbers as large as the logits. Rows split over blocks of keys merge exactly, because the
entropy of a mixture of disjoint parts is the weighted entropy of the parts plus the entropy of the split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowStatistics:
    """Statistics of softmax rows; every field is [batch, heads, queries]. A row that sees no key has P_max 0 and lse -inf."""

    p_max: Tensor
    lse: Tensor
    entropy: Tensor

    @property
    def l_max(self) -> Tensor:
        """The largest logit."""
        return self.lse + self.p_max.log()

    @property
    def sees(self) -> Tensor:
        """True for rows that see at least one key: the only rows an average may use."""
        return self.lse > float("-inf")

    @classmethod
    def of_logits(cls, logits: Tensor, visible: Tensor | None = None) -> RowStatistics:
        """Compute them from the logits of whole rows, [..., keys]; `visible` is a boolean mask of the same shape."""
        low = torch.finfo(logits.dtype).min
        masked = logits if visible is None else logits.masked_fill(~visible, low)
        lse = masked.logsumexp(-1)
        weights = torch.softmax(masked, -1)
        # Not lse - sum p l, a small difference of two numbers as large as the logits
        entropy = (weights * (lse[..., None] - masked).masked_fill(weights == 0, 0)).sum(-1)
        statistics = cls(weights.amax(-1), lse, entropy)
        return statistics if visible is None else statistics.without(~visible.any(-1))

    def map(self, change: Callable[[Tensor], Tensor]) -> RowStatistics:
        return RowStatistics(change(self.p_max), change(self.lse), change(self.entropy))

    def without(self, empty: Tensor) -> RowStatistics:
        """The same statistics, with `empty` rows as rows that see no key."""
        lse = self.lse.masked_fill(empty, float("-inf"))
        return RowStatistics(self.p_max.masked_fill(empty, 0.0), lse, self.entropy.masked_fill(empty, 0.0))


def join(parts: list[RowStatistics], dim: int) -> RowStatistics:
    """Join different rows, one after the other along `dim`."""
    return RowStatistics(
        *(torch.cat(fields, dim) for fields in zip(*((p.p_max, p.lse, p.entropy) for p in parts), strict=True))
    )


def merge(first: RowStatistics, second: RowStatistics) -> RowStatistics:
    """Merge statistics of the same rows over two disjoint sets of keys, as if the keys had been one set."""
    lse = torch.logaddexp(first.lse, second.lse)
    one, other = _share(first.lse, lse), _share(second.lse, lse)
    p_max = torch.maximum(one * first.p_max, other * second.p_max)
    return RowStatistics(p_max, lse, _part(one, first.entropy) + _part(other, second.entropy))


def merged(parts: Sequence[tuple[Tensor, RowStatistics]]) -> tuple[Tensor, RowStatistics]:
    """Merge outputs [..., queries, value_size] and statistics of the same rows over disjoint keys, as if over one set."""
    rows = reduce(merge, [rows for _, rows in parts])
    return weighed([(output, part.lse) for output, part in parts], rows.lse), rows


def weighed(parts: Sequence[tuple[Tensor, Tensor]], whole: Tensor) -> Tensor:
    """Outputs of the same rows over disjoint keys, each with its lse, as one over all keys, whose lse is `whole`."""
    weighted = [_share(lse, whole)[..., None] * output for output, lse in parts]
    return torch.stack(weighted).sum(0).to(parts[0][0].dtype)


def _share(part: Tensor, whole: Tensor) -> Tensor:
    # 0 of nothing, where -inf - -inf would be NaN; a NaN that the logits brought stays one
    return torch.exp(part - whole.clamp_min(torch.finfo(whole.dtype).min))


def _part(share: Tensor, entropy: Tensor) -> Tensor:
    # xlogy is 0 where the share is 0
    surprise: Tensor = torch.special.xlogy(share, share)
    return share * entropy - surprise
