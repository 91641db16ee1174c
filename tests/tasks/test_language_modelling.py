"""Language modelling: what is read at which length, what is told, and perplexities computed by hand."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks.language_modelling import Frame, frame_of, framed, passages, scores

TOKENIZER = ByT5Tokenizer()
END, SENTINEL = TOKENIZER.eos_token_id, TOKENIZER.convert_tokens_to_ids("<extra_id_0>")
TEXT = "".join(chr(0x100 + k) for k in range(400))  # two bytes a letter, no letter twice


def test_an_encoder_decoder_is_asked_with_a_sentinel_or_without() -> None:
    text = torch.arange(10, 22)[None]  # prefixes of 8, continuations of 4
    spans, prefix_lm = frame_of(TOKENIZER, True), frame_of(TOKENIZER, True, sentinel=False)
    read, told = framed(spans, text, length=6, continuation=4)
    assert read.tolist() == [[14, 15, 16, 17, SENTINEL, END]]
    assert told.tolist() == [[SENTINEL, 18, 19, 20, 21]]
    read, told = framed(prefix_lm, text, length=6, continuation=4)
    assert read.tolist() == [[13, 14, 15, 16, 17, END]]
    assert told.tolist() == [[18, 19, 20, 21]]


def test_a_decoder_reads_prefix_and_continuation_together() -> None:
    text = torch.arange(10, 22)[None]
    assert frame_of(TOKENIZER, False) == Frame((), (), (), shared=True)
    read, told = framed(Frame((1,), (), (), shared=True), text, length=9, continuation=4)
    assert read.tolist() == [[1, 14, 15, 16, 17]]
    assert told.tolist() == [[18, 19, 20, 21]]


@pytest.mark.parametrize("encoder_decoder", [True, False])
def test_only_the_prefix_grows_and_a_length_is_what_the_stack_reads(encoder_decoder: bool) -> None:
    frame = frame_of(TOKENIZER, encoder_decoder)
    texts = passages(TOKENIZER, TEXT, frame.prefix_tokens(200, 16), 16, cases=5)
    reads = {length: framed(frame, texts, length, 16) for length in (40, 100, 200)}
    for length, (inputs, targets) in reads.items():
        assert inputs.shape == (5, length if encoder_decoder else length - 16)
        assert torch.equal(targets, reads[200][1])
    special = 2 if encoder_decoder else 0
    short, long = (reads[length][0][:, : reads[length][0].shape[1] - special] for length in (40, 200))
    assert torch.equal(short, long[:, -short.shape[1] :])


def test_no_token_is_in_two_continuations_and_the_seed_moves_them() -> None:
    ids = TOKENIZER(TEXT, add_special_tokens=False).input_ids
    first, again, other = (passages(TOKENIZER, TEXT, 100, 20, cases=30, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    pairs = {tuple(ids[at : at + 120]): at for at in range(len(ids) - 119)}
    starts = [pairs[tuple(row)] for row in first.tolist()]
    assert all(b - a >= 20 for a, b in pairwise(starts))
    assert len(passages(TOKENIZER, TEXT, 100, 20, cases=35)) == 35
    with pytest.raises(
        BadInput, match="a text of 800 tokens has no room for 36 continuations of 20 tokens behind prefixes of 100"
    ):
        passages(TOKENIZER, TEXT, 100, 20, cases=36)


def test_perplexity_is_the_exponential_of_the_mean_over_all_tokens() -> None:
    nll = {512: [[0.5, 1.5], [2.0, 3.0], [1.0, 1.0]], 1024: [[2.0, 2.0]] * 3}
    short, long = scores(nll)
    assert (short.length, short.tokens) == (512, 6)
    assert short.perplexity == pytest.approx(math.exp(9 / 6))
    assert 1 < short.low < short.perplexity < short.high
    assert (long.perplexity, long.low, long.high) == pytest.approx((math.exp(2),) * 3)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: frame_of(TOKENIZER, False).prefix_tokens(16, 16), "16 tokens leaves no room for a prefix: 16 are taken"),
        (lambda: frame_of(TOKENIZER, True).prefix_tokens(2, 16), "2 tokens leaves no room for a prefix: 2 are taken"),
        (lambda: passages(TOKENIZER, TEXT, 10, 10, cases=0), "at least 1 case, not 0"),
        (lambda: passages(TOKENIZER, TEXT, 10, 0, cases=1), "at least 1 token, not 0"),
        (lambda: framed(frame_of(TOKENIZER, True), torch.ones(1, 12), 20, 4), "needs prefixes of 18, and these have 8"),
        (lambda: scores({8: [[1.0, math.nan]]}), "1 of 2 negative log-likelihoods are not finite"),
    ],
)
def test_bad_input_is_refused(call: Any, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        call()


def test_a_tokenizer_without_the_sentinel_is_refused(pieces: Any) -> None:
    with pytest.raises(BadInput, match=r"the tokenizer has no <extra_id_0>; .*sentinel=False"):
        frame_of(pieces, True)
    assert frame_of(pieces, True, sentinel=False).after == (pieces.eos_token_id,)
