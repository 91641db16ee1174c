"""Positions of the caller's: those that leap, and those that only seem to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods.positions.pose import PoSECollator
from tests.conftest import TRAIN_LENGTH, shared
from tests.positions import COLLATORS, DISTANCES, ids, leaping, reach

LONG = 3 * TRAIN_LENGTH


@pytest.mark.parametrize("collator", COLLATORS)
@pytest.mark.parametrize("length", [9, TRAIN_LENGTH + 9])
@pytest.mark.parametrize("method", [*DISTANCES, "alibi"])
def test_positions_that_leap_are_refused_where_distances_are_counted_in_tokens(method: str, length: int, collator: Any) -> None:
    model, inputs = shared("llama"), leaping(collator, length, LONG)
    words = f"counts distances in tokens, and these position_ids leap, up to {reach(inputs['position_ids'])} positions"
    with lw.extend(model, method), pytest.raises(BadInput, match=words):
        model(**inputs, use_cache=False)


@pytest.mark.parametrize("method", [*DISTANCES, "clex:log_scale=false", "alibi"])
def test_positions_that_restart_where_a_row_sees_nothing_before_are_no_leap(method: str) -> None:
    """Left padding counted as generation counts it, right padding, and packed sequences."""
    model = shared("llama")
    first, second = ids(TRAIN_LENGTH + 4, seed=1), ids(TRAIN_LENGTH + 9, seed=2)
    mask = torch.ones(2, TRAIN_LENGTH + 9, dtype=torch.long)
    mask[0, :5] = 0
    with lw.extend(model, method), torch.inference_mode():
        apart = [model(one, use_cache=False).logits for one in (first, second)]
        places = torch.cat([torch.arange(one.shape[1]) for one in (first, second)])[None]
        packed = model(torch.cat((first, second), 1), position_ids=places, use_cache=False).logits
        padded = torch.cat((torch.cat((torch.zeros(1, 5, dtype=torch.long), first), 1), second))
        for shown in (mask, mask.flip(-1)):
            given = padded if shown is mask else torch.cat((padded[:1].roll(-5, 1), second))
            for empty in (0, 1):
                places = (shown.cumsum(-1) - 1).masked_fill(shown == 0, empty)
                together = model(given, attention_mask=shown, position_ids=places, use_cache=False).logits
                torch.testing.assert_close(together[0][shown[0].bool()], apart[0][0], atol=1e-4, rtol=1e-3)
                torch.testing.assert_close(together[1], apart[1][0], atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(packed, torch.cat(apart, 1), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("adds", [False, True])
def test_padding_that_a_mask_of_four_axes_shows_is_no_leap_in_a_cache(adds: bool) -> None:
    model, text, padding = shared("llama"), ids(TRAIN_LENGTH + 9), 5
    shown = (torch.arange(padding + text.shape[1]) >= padding).expand(padding + text.shape[1], -1).tril()[None, None]
    mask = torch.zeros(shown.shape).masked_fill(~shown, torch.finfo(torch.float32).min) if adds else shown
    given, places = torch.nn.functional.pad(text, (padding, 0)), torch.arange(-padding, text.shape[1])[None].clamp_min(0)
    with lw.extend(model, "rerope"), torch.inference_mode():
        padded = model(given, attention_mask=mask, position_ids=places, past_key_values=tf.DynamicCache()).logits
        alone = model(text, use_cache=False).logits
    torch.testing.assert_close(padded[:, padding:], alone, atol=1e-4, rtol=1e-3)


def test_a_cache_keeps_no_positions_that_leap() -> None:
    model, inputs = shared("llama"), leaping(PoSECollator, TRAIN_LENGTH + 9, LONG)
    with lw.extend(model, "ntk:factor=2,dynamic=true"), pytest.raises(BadInput, match="a cache keeps no positions"):
        model(**inputs, past_key_values=tf.DynamicCache())
    with lw.extend(model, "ntk:factor=2,dynamic=true"), torch.inference_mode():
        # Nobody asked for this one: only who goes on with it is told
        cache = model(**inputs).past_key_values
        with pytest.raises(BadInput, match="at position_ids that leap, so its keys stand elsewhere"):
            model(inputs["input_ids"][:, :1], past_key_values=cache)
    with lw.extend(model, "ntk:factor=2"), torch.inference_mode():
        expected = model(**inputs, use_cache=False).logits
        # A model that rotates itself may keep them
        found = model(**inputs, past_key_values=tf.DynamicCache()).logits
    torch.testing.assert_close(found, expected)
