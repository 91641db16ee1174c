"""How likely a model finds each token: of a stream (causal language models), or of a text's continuation (any that answers).

    nll = token_nll(model, ids, method="streaming_llm")                                        # [streams, tokens - 1]
    nll = language_modelling(model, tokenizer, text, [512, 8192], method="log")                # by length

Column t of the first is -ln p(token t + 1 | tokens 0 ... t), so row t predicted it. The stack runs once over a whole
stream; the vocabulary is met a chunk of positions at a time, because length x vocabulary is what would not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.common.arguments import typed
from lengthwise.errors import BadInput, require
from lengthwise.models.anatomy import anatomy_of, has_encoder, unwrapped, vocabulary
from lengthwise.models.extend import Method, extend
from lengthwise.models.load import check_tokens
from lengthwise.models.patches import evaluating
from lengthwise.tasks.language_modelling import frame_of, framed, passages
from lengthwise.tasks.perplexity import SlidingWindow, SlidingWindows

# Tokens of one forward, where several short ones can share it, and logits that may stand in memory at once
TOKENS_AT_ONCE = 2**13
LOGITS_AT_ONCE = 2**24


@typed
def token_nll(
    model: nn.Module, ids: Tensor, *, method: Method = "none", train_length: int | None = None
) -> Tensor:  # [streams, tokens - 1]
    """-ln p of every token, from one forward a stream; `ids` is [streams, tokens]."""
    ids = _checked_ids(model, ids)
    scorer = TokenScorer.of(model, train_length)
    at_once = max(1, TOKENS_AT_ONCE // ids.shape[1])
    with extend(model, method, train_length=train_length), without_gradients(model):
        return torch.cat([scorer.nll(rows) for rows in torch.split(ids, at_once)])


def windowed_nll(
    model: nn.Module, ids: Tensor, windows: SlidingWindows, *, method: Method = "none", train_length: int | None = None
) -> Tensor:  # [streams, tokens - 1]
    """-ln p of every token in the first window that holds it; each window is read by itself, from position 0."""
    ids = _checked_ids(model, ids)
    scorer = TokenScorer.of(model, train_length)
    nll = torch.empty(len(ids), ids.shape[1] - 1)
    with extend(model, method, train_length=train_length), without_gradients(model):
        for group in _batches(windows.over(ids.shape[1]), at_once=max(1, TOKENS_AT_ONCE // windows.length)):
            skipped = group[0].scored - group[0].start - 1
            for stream, out in zip(ids, nll, strict=True):
                rows = torch.stack([stream[window.start : window.stop] for window in group])
                for window, scored in zip(group, scorer.nll(rows, skipped), strict=True):
                    out[window.scored - 1 : window.stop - 1] = scored
    return nll


def reencoded_nll(model: nn.Module, ids: Tensor, window: int, stride: int = 1) -> Tensor:  # [streams, tokens - 1]
    """-ln p of every token from a fresh reading of the last `window` tokens: the best a model can do without any method.

    One forward of `window` tokens for each token of the stream, or for every `stride` of them, which are
    then told from more than `window` - `stride` tokens.
    """
    require(window >= 1, f"a window needs at least 1 token to tell the next one from, not {window}")
    return windowed_nll(model, ids, SlidingWindows(window + 1, stride))


def language_modelling(
    model: nn.Module,
    tokenizer: Any,
    text: str,
    lengths: Sequence[int],
    *,
    cases: int = 100,
    continuation: int = 64,
    sentinel: bool = True,
    seed: int = 0,
    method: Method = "none",
    train_length: int | None = None,
) -> dict[int, Tensor]:  # [cases, continuation]
    """-ln p of the same continuations at every length, from prefixes that grow (see `tasks.language_modelling`).

    `tasks.language_modelling.scores` makes perplexities of it, `tasks.perplexity.compared` ratios, both with intervals.
    """
    require(bool(lengths), "give at least one length in tokens")
    frame = frame_of(tokenizer, has_encoder(model), sentinel)
    longest = frame.prefix_tokens(max(lengths), continuation)
    texts = passages(tokenizer, text, longest, continuation, cases, seed)
    asked = {length: framed(frame, texts, length, continuation) for length in sorted(set(lengths))}
    options: dict[str, Any] = {"skipped": len(frame.lead), "method": method, "train_length": train_length}
    return {length: continuation_nll(model, *read, **options) for length, read in asked.items()}


def continuation_nll(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    skipped: int = 0,
    method: Method = "none",
    train_length: int | None = None,
) -> Tensor:  # [cases, targets - skipped]
    """-ln p of every target after the first `skipped`, given `inputs` [cases, read] and the targets before it.

    An encoder-decoder reads the inputs with its encoder and tells the targets with its decoder; a decoder reads on.
    """
    shapes = tuple(inputs.shape), tuple(targets.shape)
    fits = all(len(shape) == 2 and min(shape) >= 1 for shape in shapes) and shapes[0][0] == shapes[1][0]
    require(fits, f"inputs and targets must be [cases, tokens] of the same cases, not of shapes {shapes[0]} and {shapes[1]}")
    require(0 <= skipped < shapes[1][1], f"skipped must leave at least one of {shapes[1][1]} targets, not be {skipped}")
    scorer = None if has_encoder(model) else TokenScorer.of(model, train_length)
    logits = shapes[1][1] * unwrapped(model).config.vocab_size
    at_once = max(1, min(TOKENS_AT_ONCE // (shapes[0][1] + shapes[1][1]), LOGITS_AT_ONCE // logits))
    parts: list[Tensor] = []
    with extend(model, method, train_length=train_length), without_gradients(model):
        for read, wanted in zip(torch.split(inputs, at_once), torch.split(targets, at_once), strict=True):
            if scorer is None:
                parts.append(_decoded_nll(model, read, wanted, check=not parts)[:, skipped:])
            else:
                parts.append(scorer.nll(torch.cat([read, wanted], 1), read.shape[1] - 1 + skipped))
    return torch.cat(parts)


def _decoded_nll(model: nn.Module, inputs: Tensor, targets: Tensor, check: bool) -> Tensor:  # [cases, targets], on the CPU
    device = next(model.parameters()).device
    targets = targets.to(device)
    encoded = unwrapped(model).get_encoder()(input_ids=inputs.to(device))
    # With labels a model gives its decoder the targets itself, each one place late
    logits = model(encoder_outputs=encoded, labels=targets).logits
    if check and targets.shape[1] > 1:
        _check_unseen(model, encoded, targets, logits)
    return nn.functional.cross_entropy(logits.float().mT, targets, reduction="none").cpu()


def _check_unseen(model: nn.Module, encoded: Any, targets: Tensor, logits: Tensor) -> None:
    """Refuse a decoder that sees the tokens it should predict, as umT5's in transformers 5.15: they would look likely."""
    other = targets.clone()
    # The last but one is the last that is given to the decoder
    other[:, -2] = (other[:, -2] + 1) % logits.shape[-1]
    before, after = logits[:, :-1], model(encoder_outputs=encoded, labels=other).logits[:, :-1]
    # Experts that are given other tokens round those that stay otherwise, by more than one matrix would
    rounding = max(8 * torch.finfo(logits.dtype).eps, 1e-4) * float(before.abs().max())
    if not torch.allclose(before, after, rtol=0.0, atol=rounding, equal_nan=True):
        raise BadInput(
            f"the decoder of this {type(unwrapped(model)).__name__} sees the tokens that it should tell, so they look likely; "
            "with umT5 take a newer transformers"
        )


@dataclass(frozen=True)
class TokenScorer:
    """A causal language model: its stack, and the one matrix that turns hidden states into logits."""

    model: nn.Module
    stack: nn.Module
    head: Any

    @classmethod
    def of(cls, model: nn.Module, train_length: int | None) -> TokenScorer:
        anatomy = anatomy_of(model, train_length)
        head = unwrapped(model).get_output_embeddings()
        if not anatomy.causal or head is None:
            raise BadInput(
                f"{type(unwrapped(model)).__name__} does not tell the next token from those before it; "
                "give a causal language model, such as a LlamaForCausalLM"
            )
        return cls(model, anatomy.stack, head)

    def nll(self, ids: Tensor, skipped: int = 0) -> Tensor:  # [rows, tokens - 1 - skipped], on the CPU
        """-ln p of all tokens after the first 1 + skipped."""
        hidden = self.hidden(ids[:, :-1])[:, skipped:]
        targets = ids[:, 1 + skipped :].to(hidden.device)
        at_once = max(1, LOGITS_AT_ONCE // self.head.weight.shape[0])
        chunks = zip(torch.split(hidden.flatten(0, 1), at_once), torch.split(targets.flatten(), at_once), strict=True)
        parts = [nn.functional.cross_entropy(self.head(some).float(), wanted, reduction="none") for some, wanted in chunks]
        return torch.cat(parts).view(targets.shape).cpu()

    def hidden(self, ids: Tensor) -> Tensor:  # [rows, tokens, width]
        """Hidden states that the stack hands to the head, from a forward that makes logits of the last position only."""
        captured: list[Tensor] = []
        handle = self.stack.register_forward_hook(lambda _module, _inputs, output: captured.append(output[0]))
        try:
            last = self.model(input_ids=ids.to(next(self.stack.parameters()).device), use_cache=False, logits_to_keep=1).logits
        finally:
            handle.remove()
        self._check_head(captured[0], last)
        return captured[0]

    def _check_head(self, hidden: Tensor, last: Tensor) -> None:
        """Refuse families that scale or cap their logits after the matrix; `last` are the model's at the last position."""
        ours, theirs = self.head(hidden[:, -1:]).float(), last.float()
        # A model that has diverged says no number, and is told apart by its likelihoods
        rounding = 8 * torch.finfo(hidden.dtype).eps * float(ours.abs().nan_to_num(0.0).max())
        if not torch.allclose(ours, theirs, rtol=0.0, atol=rounding, equal_nan=True):
            raise BadInput(
                f"{type(unwrapped(self.model)).__name__} does more to its logits than one matrix (it scales or caps them); "
                "its likelihoods cannot be told in chunks"
            )


@contextmanager
def without_gradients(model: nn.Module) -> Iterator[None]:
    """Turn gradients and dropout off for the time of the block."""
    with evaluating(model), torch.no_grad():
        yield


def _checked_ids(model: nn.Module, ids: Tensor) -> Tensor:
    shape = tuple(ids.shape)
    if len(shape) != 2 or shape[0] < 1 or shape[1] < 2:
        raise BadInput(f"token ids must be [streams, tokens] with at least 2 tokens, not of shape {shape}")
    require(not ids.is_floating_point(), f"token ids must be whole numbers, not {ids.dtype}")
    check_tokens(ids, vocabulary(model))
    return ids.long()


def _batches(windows: list[SlidingWindow], at_once: int) -> Iterator[list[SlidingWindow]]:
    """Batches of neighbouring windows that read and score the same number of tokens, at most `at_once` each."""
    for _, same in groupby(windows, key=lambda window: (window.stop - window.start, window.targets)):
        alike = list(same)
        yield from (alike[first : first + at_once] for first in range(0, len(alike), at_once))
