"""Shifted sparse attention: the segments by their formula, and a whole Llama against transformers with a mask a head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor

import lengthwise as lw
from lengthwise.methods.positions.shifted_sparse import ShiftedSparse
from lengthwise.methods.positions.window import Window
from tests.conftest import DECODER_SIZES, logits, make, tokens

HEADS = 4


def sees(i: int, j: int, shift: int, group: int) -> bool:
    return j <= i and (j + shift) // group == (i + shift) // group


def mask_of(length: int, groups: int = 4) -> Tensor:  # [heads, queries, keys]
    group = (length + groups - 1) // groups
    shifts = [0] * (HEADS // 2) + [group - group // 2] * (HEADS - HEADS // 2)
    return torch.tensor([[[sees(i, j, s, group) for j in range(length)] for i in range(length)] for s in shifts])


def test_groups_by_hand() -> None:
    plain, shifted = ShiftedSparse().segments(16)
    assert plain == [(0, 4), (4, 8), (8, 12), (12, 16)]
    # Not wrapped: the first and the last half group stay apart
    assert shifted == [(0, 2), (2, 6), (6, 10), (10, 14), (14, 16)]
    assert ShiftedSparse(2).segments(7) == ([(0, 4), (4, 7)], [(0, 2), (2, 6), (6, 7)])
    assert ShiftedSparse().segments(1) == ([(0, 1)], [(0, 1)])


@pytest.mark.parametrize("groups", [2, 4, 7])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 16, 17, 30])
def test_segments_are_the_formulas_groups(length: int, groups: int) -> None:
    mask = mask_of(length, groups)
    for head, spans in zip((0, HEADS - 1), ShiftedSparse(groups).segments(length), strict=True):
        assert [j for first, last in spans for j in range(first, last)] == list(range(length))
        together = {(i, j) for first, last in spans for i in range(first, last) for j in range(first, i + 1)}
        assert together == {(i, j) for i in range(length) for j in range(length) if mask[head, i, j]}


def told(model: Any, ids: Tensor, weights: Tensor, **options: Any) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    output = model(ids, use_cache=False, **options).logits
    (output * weights).sum().backward()
    return output.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("length", [16, 45])
def test_a_llama_says_and_learns_what_transformers_does_with_that_mask(length: int) -> None:
    # A head of 16 has a scale that float32 holds exactly
    torch.manual_seed(0)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**{**DECODER_SIZES, "head_dim": 16, "initializer_range": 0.3})).double().train()
    ids = tokens(length, batch=2)
    weights = torch.randn(2, length, 384, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    hidden = torch.zeros(1, HEADS, length, length, dtype=torch.float64)
    hidden.masked_fill_(~mask_of(length), torch.finfo(torch.float64).min)
    # Not eager, which makes its weights in float32
    model.set_attn_implementation("sdpa")
    expected, gradients = told(model, ids, weights, attention_mask=hidden)
    with lw.extend(model, ShiftedSparse()):
        found, ours = told(model, ids, weights)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    for name, gradient in gradients.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-9, rtol=1e-9, msg=name)
    assert not torch.allclose(told(model, ids, weights)[0], expected, atol=1e-3)


@pytest.mark.parametrize("method", ["none", "interpolation:factor=2", "clex", "rerope", "log"])
def test_no_token_hears_of_later_ones(method: str) -> None:
    model, ids = make("llama"), tokens(40)
    with lw.extend(model, [method, ShiftedSparse()]):
        before = logits(model, ids)
        for place in (1, 19, 39):
            changed = ids.clone()
            changed[0, place] = 3 + (ids[0, place] - 2) % 370
            after = logits(model, changed)
            assert torch.equal(after[:, :place], before[:, :place])
            assert not torch.allclose(after[:, place], before[:, place])


def test_temperatures_count_the_keys_of_a_group() -> None:
    """A law that is 1 up to 10 keys leaves groups of 10 alone, whatever the input's length."""
    model, ids = make("llama"), tokens(40)
    with lw.extend(model, ShiftedSparse()):
        plain = logits(model, ids)
    for train_length, same in ((10, True), (4, False)):
        with lw.extend(model, [f"infoscale:train_length={train_length}", ShiftedSparse()]):
            assert torch.allclose(logits(model, ids), plain, atol=1e-6) == same


def test_what_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(lw.BadInput, match="at least 2 groups, not 1"):
        ShiftedSparse(1)
    for family in ("bert", "t5"):
        with (
            pytest.raises(lw.BadInput, match=rf"ShiftedSparse .* this {family} reads in both directions"),
            lw.extend(make(family), ShiftedSparse()),
        ):
            pass
    with pytest.raises(lw.BadInput, match="Window and ShiftedSparse both fill the visible slot"):
        lw.extend(make("llama"), [Window(8), ShiftedSparse()]).__enter__()


def test_caches_and_measurements_are_refused_by_name() -> None:
    model = make("llama")
    with lw.extend(model, ShiftedSparse()):
        with pytest.raises(lw.BadInput, match=r"ShiftedSparse is for training .* 1 tokens meet a cache of 12; leave it out"):
            model.generate(tokens(12), max_new_tokens=3, do_sample=False)
        with pytest.raises(lw.BadInput, match="ShiftedSparse is for training; leave it out to measure attention"):
            lw.row_statistics(model, tokens(12))
