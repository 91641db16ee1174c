"""How sharp a model's attention is: P_max and entropy, averaged over rows, for every layer and head.

    stats = lengthwise.row_statistics(model, tokenizer(text, return_tensors="pt"))
    stats.p_max                                                     # [layers, heads]

Works at any length the hidden states fit at: rows are measured a block at a time and only their sums are kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.attention import Equation, RowStatistics
from lengthwise.common.arguments import typed
from lengthwise.common.progress import ProgressCallback, no_progress
from lengthwise.common.sequences import pad_rows, token_rows
from lengthwise.errors import BadInput
from lengthwise.models.anatomy import Anatomy, anatomy_of, vocabulary
from lengthwise.models.extend import Method, extend
from lengthwise.models.patches import evaluating

# Entries of a batch that are handed to the stack, where its forward takes them
STACK_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


@dataclass(frozen=True)
class AttentionStatistics:
    """Mean P_max, entropy and largest logit of a row, [layers, heads] each; a row that sees no key counts nowhere."""

    p_max: Tensor  # [layers, heads], mean largest probability of a row
    entropy: Tensor  # [layers, heads], mean entropy of a row, in nats
    l_max: Tensor  # [layers, heads], mean largest logit of a row
    rows: int  # rows a head, over the whole batch

    def of(self, statistic: str) -> Tensor:
        return self.p_max if statistic == "pmax" else self.entropy


class RowMeans:
    """An observer that averages each layer's rows as they pass.

    `least_share` leaves out rows that see no more than this share of what the widest row of their sequence sees. Half makes
    short and long inputs of a causal model comparable; in an encoder, where all rows see everything, it leaves out none.
    """

    def __init__(self, layers: int, least_share: float = 0.0, tick: ProgressCallback = no_progress) -> None:
        self.least_share = least_share
        self.tick = tick
        self.layers: list[AttentionStatistics | None] = [None] * layers

    def before(self, layer: int, equation: Equation) -> Equation:
        return equation

    def after(self, layer: int, equation: Equation, rows: RowStatistics) -> None:
        weights = row_weights(equation.count, self.least_share)
        count = int(weights.expand(rows.lse.shape[0], -1, -1).sum())
        p_max, entropy, l_max = (mean_rows(field, weights).mean(0) for field in (rows.p_max, rows.entropy, rows.l_max))
        self.layers[layer] = AttentionStatistics(p_max, entropy, l_max, count)
        self.tick(1)

    def result(self) -> AttentionStatistics:
        measured = [layer for layer in self.layers if layer is not None]
        p_max, entropy, l_max = (
            torch.stack([getattr(layer, name) for layer in measured]).cpu() for name in ("p_max", "entropy", "l_max")
        )
        return AttentionStatistics(p_max, entropy, l_max, measured[0].rows)


def row_weights(n: Tensor, least_share: float) -> Tensor:  # [batch or 1, queries] -> [batch or 1, 1, queries]
    """1 for rows that count; n is how many keys each sees."""
    widest = n.amax(-1, keepdim=True)
    return ((n > least_share * widest) & (n > 0))[:, None].float()


def mean_rows(field: Tensor, weights: Tensor) -> Tensor:  # [..., batch, heads, queries] -> [..., batch, heads]
    """The mean over counted rows, weighted so that a further plain mean over the batch counts every row once."""
    weights = weights.expand(field.shape[-3], -1, -1)
    # Rows that see nothing hold -inf, which 0 does not take away
    total = field.masked_fill(weights == 0, 0.0).sum(-1)
    return total * len(weights) / weights.sum()


@typed
def row_statistics(
    model: nn.Module,
    batch: Any,
    *,
    method: Method = "none",
    train_length: int | None = None,
    least_share: float = 0.0,
) -> AttentionStatistics:
    """Run the model's stack once over a batch and average every layer and head.

    The batch is what a tokenizer returns, or token ids alone: a tensor, lists of any lengths, or rows of a dataset.
    """
    anatomy = anatomy_of(model, train_length)
    means = RowMeans(len(anatomy.layers), least_share)
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else batch
    rows = token_rows(ids if isinstance(ids, Tensor) else batch, vocabulary(model))
    if not isinstance(ids, Tensor):
        batch = dict(zip(STACK_INPUTS, pad_rows([row.tolist() for row in rows], 0, left=False), strict=False))
    with extend(model, method, train_length=train_length, observer=means):
        run_stack(anatomy, batch)
    return means.result()


def run_stack(anatomy: Anatomy, batch: Tensor | Mapping[str, Tensor]) -> Tensor:
    """One forward of the extended stack, without gradients, dropout or a cache: its last hidden states."""
    given = {"input_ids": batch} if isinstance(batch, Tensor) else batch
    taken = inspect.signature(anatomy.stack.forward).parameters
    inputs: dict[str, Any] = {key: given[key] for key in STACK_INPUTS if key in given and key in taken}
    device = next(anatomy.stack.parameters()).device
    if anatomy.causal:
        inputs["use_cache"] = False
    with evaluating(anatomy.stack), torch.inference_mode():
        hidden: Tensor = anatomy.stack(**{key: v.to(device) if isinstance(v, Tensor) else v for key, v in inputs.items()})[0]
        return hidden


def refuse_nan(anatomy: Anatomy, values: Tensor) -> None:  # [layers, ...]
    """Say where a statistic that is not finite comes from."""
    if bool(values.isfinite().all()):
        return
    for name, parameter in anatomy.stack.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise BadInput(f"the weights hold NaN or infinity: {name}; the checkpoint is damaged")
    layer = int((~values.isfinite()).nonzero()[0, 0])
    dtype = next(anatomy.stack.parameters()).dtype
    raise BadInput(f"the attention of layer {layer} is not finite: the model overflows in {dtype}")
