"""Long-short misalignment of a causal language model: how differently it goes on from a text and from the text's own suffix.

    apart = lengthwise.misalignment(model, tokenizer, train_length=4096)
    apart.sce, apart.interval                                       # L_misalign, nats, and its 95 % interval

    L_misalign = E[L_SCE(g(x[-l1:]), g(x[-l2:]))],   l1, l2 from [L/2, L]                  Output Alignment, equation 2

A pair is a place in the text and an e from U{1 ... L/2}: tokens [0, L) and [e, L + e) are read once each, and every position
counts that both readings tell from L/2 to L tokens, L/2 + 1 - e of them. Over the draws of e every two different lengths of the
range meet equally often: the paper's expectation, with two forwards for many positions instead of one. Neither reading has a
token of the tokenizer's own in front, because the paper's suffixes are plain; a model that cannot read without one, such as
Gemma, gets it as `first_token`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.common.arguments import require_tokenizer, typed
from lengthwise.common.progress import ProgressCallback, progress
from lengthwise.common.text import text_or_prose
from lengthwise.errors import require
from lengthwise.evaluation.likelihood import LOGITS_AT_ONCE, TOKENS_AT_ONCE, TokenScorer, without_gradients
from lengthwise.models.anatomy import anatomy_of, vocabulary
from lengthwise.models.extend import Method, extend
from lengthwise.models.fingerprint import model_fingerprint, versions
from lengthwise.models.load import check_tokenizer, check_tokens
from lengthwise.models.patches import refuse_extended
from lengthwise.tasks.perplexity import RESAMPLES, widened
from lengthwise.training.output_alignment.loss import symmetric_cross_entropy, symmetric_kl
from lengthwise.training.output_alignment.views import Views, drawn_extra

SAMPLING = "1..L/2"


@dataclass(frozen=True)
class Misalignment:
    """Means over positions, in nats; intervals are 95 % bootstrap intervals over pairs."""

    sce: float  # symmetric cross-entropy: the paper's L_misalign
    interval: tuple[float, float]
    kl: float  # symmetric KL divergence: 0 for a model that says the same twice
    kl_interval: tuple[float, float]
    pairs: int  # pairs of readings
    positions: int  # over all pairs
    length: int  # L, the longest context
    train_length: int  # what the method took for the training length
    method: str
    seed: int
    text_tokens: int  # of the text that pairs were cut from
    model: dict[str, Any]  # fingerprint
    versions: dict[str, str]


@typed
def misalignment(
    model: nn.Module,
    tokenizer: Any,
    *,
    text: str | None = None,
    files: Sequence[str | Path] = (),
    train_length: int | None = None,
    length: int | None = None,
    pairs: int = 16,
    seed: int = 0,
    method: Method = "none",
    first_token: int | None = None,
    show_progress: bool = True,
) -> Misalignment:
    """Measure how differently a model goes on from texts and from their suffixes.

    The text, files, or the prose that ships with lengthwise are read with the tokenizer; token ids may stand in its place.
    L is `length`, by default the training length, which is by default what the model's config says. `first_token` takes the
    place of each reading's first one.
    """
    refuse_extended(model, "misalignment")
    anatomy = anatomy_of(model, train_length)
    length = anatomy.train_length if length is None else length
    require(length >= 4, f"misalignment needs a length of at least 4 tokens, not {length}")
    require(pairs >= 2, f"misalignment needs at least 2 pairs for an interval, not {pairs}")
    require(seed >= 0, f"seed must be 0 or more, not {seed}")
    scorer = TokenScorer.of(model, train_length)
    words = vocabulary(model)
    ids = _ids(tokenizer, text, files, words)
    check_tokens(ids if first_token is None else torch.cat([ids, torch.tensor([first_token])]), words)
    rows = _rows(ids, length, pairs, seed)
    plans = [Views(length, drawn_extra(SAMPLING, length, seed, pair), "half") for pair in range(pairs)]
    bar = progress("misalignment", pairs, show_progress)
    with extend(model, method, train_length=train_length), without_gradients(model), bar as tick:
        sums = _pair_sums(scorer, rows, plans, first_token, tick)
    counts = np.array([plan.positions for plan in plans])
    broken = "the model's outputs are NaN or infinite on this text; give a wider --dtype, or another method"
    require(bool(np.isfinite(sums).all()), broken)
    (sce, interval), (kl, kl_interval) = (_mean(column, counts) for column in sums.T)
    return Misalignment(
        sce=sce,
        interval=interval,
        kl=kl,
        kl_interval=kl_interval,
        pairs=pairs,
        positions=int(counts.sum()),
        length=length,
        train_length=anatomy.train_length,
        method=method if isinstance(method, str) else repr(method),
        seed=seed,
        text_tokens=len(ids),
        model=model_fingerprint(anatomy),
        versions=versions(),
    )


def _ids(tokenizer: Any, text: str | None, files: Sequence[str | Path], words: int) -> Tensor:  # [tokens]
    if isinstance(tokenizer, Tensor):
        require(text is None and not files, "give token ids or a text, not both")
        require(tokenizer.dim() == 1, f"token ids must be one stream of [tokens], not of shape {tuple(tokenizer.shape)}")
        whole = not (tokenizer.is_floating_point() or tokenizer.dtype == torch.bool)
        require(whole, f"token ids must be whole numbers, not {tokenizer.dtype}")
        return tokenizer.cpu().long()
    require_tokenizer(tokenizer)
    check_tokenizer(tokenizer, words)
    _, text = text_or_prose(text, files)
    # Tokenizers warn that a text is longer than the model; that is what we are here for
    return torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False).input_ids)


def _rows(ids: Tensor, length: int, pairs: int, seed: int) -> Tensor:  # [pairs, tokens]
    """A row a pair, spread over the text and moved by the seed within their share of it."""
    tokens = length + length // 2
    short = f"the text has {len(ids)} tokens, and a pair at length {length} takes {tokens}"
    require(len(ids) >= tokens, f"{short}; give a longer text (--text FILE) or a smaller length")
    require(pairs <= len(ids), f"{pairs} pairs begin at more places than a text of {len(ids)} tokens has; ask for fewer")
    if len(ids) < pairs * tokens:
        overlap = f"{pairs} pairs of {tokens} tokens overlap in a text of {len(ids)}: the intervals are too narrow"
        warnings.warn(f"{overlap}; give a longer text or fewer pairs", stacklevel=4)
    shift = np.random.default_rng(seed).random(pairs)
    starts = [int((len(ids) - tokens) * (pair + shift[pair]) / pairs) for pair in range(pairs)]
    return torch.stack([ids[start : start + tokens] for start in starts])


def _pair_sums(
    scorer: TokenScorer, rows: Tensor, plans: Sequence[Views], first_token: int | None, tick: ProgressCallback
) -> np.ndarray:  # [pairs, 2]
    """L_SCE and symmetric KL of every pair, summed over its positions."""

    def read(texts: list[Tensor]) -> Tensor:
        tokens = torch.stack(texts)
        if first_token is not None:
            tokens[:, 0] = first_token
        return scorer.hidden(tokens)

    at_once = max(1, TOKENS_AT_ONCE // (2 * plans[0].length))
    sums: list[tuple[float, float]] = []
    for start in range(0, len(rows), at_once):
        batch = list(zip(rows[start : start + at_once], plans[start : start + at_once], strict=True))
        first = read([row[plan.first] for row, plan in batch])
        second = read([row[plan.second] for row, plan in batch])
        for hidden, other, (_, plan) in zip(first, second, batch, strict=True):
            over_first, over_second = plan.shared
            sums.append(_sums(scorer, hidden[over_first], other[over_second]))
        tick(len(batch), f"misalignment: {len(sums)} of {len(rows)} pairs")
    return np.array(sums)


def _sums(scorer: TokenScorer, hidden: Tensor, other: Tensor) -> tuple[float, float]:
    at_once = max(1, LOGITS_AT_ONCE // (2 * scorer.head.weight.shape[0]))
    sce = kl = 0.0
    for states, other_states in zip(torch.split(hidden, at_once), torch.split(other, at_once), strict=True):
        logits = scorer.head(states), scorer.head(other_states)
        sce += float(symmetric_cross_entropy(*logits).double().sum())
        kl += float(symmetric_kl(*logits).double().sum())
    return sce, kl


def _mean(sums: np.ndarray, counts: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The mean over all positions, and the ends of its interval when pairs are drawn again with replacement."""
    mean = float(sums.sum() / counts.sum())
    draws = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    means = sums[draws].sum(1) / counts[draws].sum(1)
    low, high = np.quantile(widened(means, mean, len(sums), len(sums) - 1), [0.025, 0.975])
    return mean, (max(0.0, float(low)), float(high))
