"""Language modelling: how well a model predicts a text's next tokens from more and more of the text before them.

    perplexity(L) = exp(mean over cases and tokens of -ln p(token | the tokens before it))

A case is a place in a text. Its continuation, the tokens after that place, is the same at every length; only the prefix grows,
to the left. So lengths and methods are compared on the same tokens, and a prefix of the training length is what truncation
would leave of any longer one. A length counts what the long stack reads, special tokens included:

    encoder-decoder    encoder: prefix <extra_id_0> </s>    decoder: <extra_id_0> continuation    L tokens in the encoder
    ... no sentinel    encoder: prefix </s>                 decoder: continuation                 L tokens in the encoder
    decoder            prefix continuation                                                        L tokens in all

The sentinel is T5's span corruption: the decoder fills what the encoder's sentinel stands for. Models trained further to go on
with a prefix (T5 LM-adapted, the embedded model) are asked without it. The sentinel itself is never scored. Chi et al. do not
say what encoder and decoder read in their Table 3.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from lengthwise.common.sequences import special_tokens
from lengthwise.errors import require
from lengthwise.tasks.perplexity import by_bucket

SENTINEL = "<extra_id_0>"


@dataclass(frozen=True)
class Frame:
    """The special tokens around a prefix and before its continuation."""

    before: tuple[int, ...]  # in front of the prefix
    after: tuple[int, ...]  # behind it
    lead: tuple[int, ...]  # what a decoder of its own is given before the continuation
    shared: bool  # whether prefix and continuation stand in one stack

    def prefix_tokens(self, length: int, continuation: int) -> int:
        taken = len(self.before) + len(self.after) + (continuation if self.shared else 0)
        require(length > taken, f"a length of {length} tokens leaves no room for a prefix: {taken} are taken; ask for more")
        return length - taken


@dataclass(frozen=True)
class LengthPerplexity:
    """The continuations of all cases at one length; the ends are those of a 95 % bootstrap interval over cases."""

    length: int  # tokens
    perplexity: float
    low: float
    high: float
    tokens: int  # scored, over all cases


def frame_of(tokenizer: Any, encoder_decoder: bool, sentinel: bool = True) -> Frame:
    """The tokenizer's own special tokens; with `sentinel` an encoder-decoder is asked as in span corruption."""
    before, after = map(tuple, special_tokens(tokenizer))
    if not encoder_decoder:
        return Frame(before, (), (), shared=True)
    if not sentinel:
        return Frame(before, after, (), shared=False)
    token = tokenizer.convert_tokens_to_ids(SENTINEL)
    known = token is not None and token != tokenizer.unk_token_id
    require(known, f"the tokenizer has no {SENTINEL}; ask a model trained to go on with a prefix without (sentinel=False)")
    return Frame(before, (token, *after), (token,), shared=False)


def passages(
    tokenizer: Any, text: str, prefix: int, continuation: int, cases: int, seed: int = 0
) -> Tensor:  # [cases, prefix + continuation]
    """Stretches of the text, each with the longest prefix that will be asked for; no token is in two continuations."""
    tokens = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return passages_of(tokens, prefix, continuation, cases, seed)


def passages_of(
    tokens: Sequence[int], prefix: int, continuation: int, cases: int, seed: int = 0
) -> Tensor:  # [cases, prefix + continuation]
    """`passages` of a text that is tokens already."""
    require(cases >= 1, f"there must be at least 1 case, not {cases}")
    require(continuation >= 1, f"a continuation needs at least 1 token, not {continuation}")
    share = (len(tokens) - prefix) // cases
    require(
        share >= continuation,
        f"a text of {len(tokens)} tokens has no room for {cases} continuations of {continuation} tokens behind prefixes of "
        f"{prefix}; give a longer text, or ask for fewer cases or a smaller length",
    )
    # Spread over the text, and moved by the seed within their share of it
    shift = random.Random(f"language_modelling {seed}")
    starts = [share * case + shift.randint(0, share - continuation) for case in range(cases)]
    return torch.tensor([tokens[start : start + prefix + continuation] for start in starts])


def framed(
    frame: Frame, passages: Tensor, length: int, continuation: int
) -> tuple[Tensor, Tensor]:  # [cases, read], [cases, lead + continuation]
    """The model's inputs at one length, and the tokens it should predict from them."""
    prefix = frame.prefix_tokens(length, continuation)
    there = passages.shape[1] - continuation
    require(prefix <= there, f"a length of {length} tokens needs prefixes of {prefix}, and these have {there}")
    start = there - prefix
    inputs = [_columns(frame.before, passages), passages[:, start:there], _columns(frame.after, passages)]
    return torch.cat(inputs, 1), torch.cat([_columns(frame.lead, passages), passages[:, there:]], 1)


def scores(nll: Mapping[int, ArrayLike]) -> list[LengthPerplexity]:
    """Perplexities by length; `nll` holds -ln p of each token of each continuation, [cases, continuation]."""
    perplexities = []
    for length, table in nll.items():
        shape = torch.as_tensor(table).shape
        (whole,) = by_bucket(table, [0, shape[-1] if len(shape) else 1])
        perplexities.append(LengthPerplexity(length, whole.perplexity, whole.low, whole.high, whole.tokens))
    return perplexities


def _columns(tokens: Sequence[int], like: Tensor) -> Tensor:
    return torch.tensor(tokens, dtype=like.dtype).expand(len(like), -1)
