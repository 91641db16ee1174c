"""Caches under a method: padding that comes between tokens, and caches that are used again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, StaticCache

import lengthwise as lw
from lengthwise.errors import BadInput
from tests.conftest import TRAIN_LENGTH, make, tokens

LONG = 2 * TRAIN_LENGTH
BETWEEN = "padding between tokens, and a cache keeps no positions"
PUSHED = "padding would push out real ones"


def second_turn(model: torch.nn.Module, first: Tensor, second: Tensor, shown: Tensor) -> Tensor:
    """The last logits of a conversation of two turns, positions counted over what is shown."""
    cache = DynamicCache(config=model.config)
    model(first, past_key_values=cache)
    mask = torch.cat([torch.ones_like(first), shown], 1)
    places = (mask.cumsum(-1) - 1).clamp_min(0)[:, first.shape[1] :]
    with torch.no_grad():
        found: Tensor = model(second, attention_mask=mask, position_ids=places, past_key_values=cache).logits[:, -1]
    return found


@pytest.mark.parametrize("length", [LONG, TRAIN_LENGTH // 2])
@pytest.mark.parametrize("method", ["none", "log", "yarn:factor=4"])
def test_a_row_with_padding_between_its_turns_is_as_without_it(method: str, length: int) -> None:
    model, first, second = make("llama"), tokens(length).expand(2, -1), tokens(8, seed=1).expand(2, -1)
    shown = torch.tensor([[1] * 8, [0] * 5 + [1] * 3])
    with lw.extend(model, method):
        both = second_turn(model, first, second, shown)
        alone = second_turn(model, first[1:], second[1:, 5:], shown[1:, 5:])
    torch.testing.assert_close(both[1:], alone, atol=2e-5, rtol=0)


@pytest.mark.parametrize("length", [LONG, TRAIN_LENGTH // 2])
@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("rerope", BETWEEN),
        ("ntk:factor=4,dynamic=true", BETWEEN),
        ("clex", BETWEEN),
        ("streaming_llm", PUSHED),
        ("lm_infinite", PUSHED),
    ],
)
def test_padding_between_turns_is_refused_where_keys_are_placed_by_their_index(method: str, words: str, length: int) -> None:
    model, first, second = make("llama"), tokens(length).expand(2, -1), tokens(8, seed=1).expand(2, -1)
    shown = torch.tensor([[1] * 8, [0] * 5 + [1] * 3])
    with lw.extend(model, method), pytest.raises(BadInput, match=words):
        second_turn(model, first, second, shown)


def test_padding_between_tokens_is_fine_where_positions_count_it() -> None:
    model, first, second = make("llama"), tokens(LONG), tokens(8, seed=1)
    mask = torch.ones(1, LONG + 8, dtype=torch.long)
    mask[0, LONG : LONG + 5] = 0
    with torch.no_grad(), lw.extend(model, "rerope"):
        cache = DynamicCache(config=model.config)
        model(first, past_key_values=cache)
        found = model(second, attention_mask=mask, past_key_values=cache).logits[:, -1]
        at_once = model(torch.cat([first, second], 1), attention_mask=mask).logits[:, -1]
    torch.testing.assert_close(found, at_once, atol=2e-5, rtol=0)


def test_a_cache_that_was_emptied_is_the_plain_models_again() -> None:
    """A static one: in older transformers a dynamic cache keeps its length when it is reset."""
    model, ids = make("llama"), tokens(LONG)
    cache = StaticCache(config=model.config, max_cache_len=2 * LONG)
    with torch.no_grad():
        before = set(vars(cache))
        with lw.extend(model, "rerope"):
            model(ids, past_key_values=cache)
            assert type(cache) is StaticCache
        with pytest.raises(BadInput, match="no longer in force"):
            model(ids, past_key_values=cache)
        cache.reset()
        torch.testing.assert_close(model(ids, past_key_values=cache).logits, model(ids).logits, atol=2e-5, rtol=0)
        assert set(vars(cache)) == before
        with pytest.raises(BadInput, match="filled without"), lw.extend(model, "rerope"):
            model(ids, past_key_values=cache)
