"""The quick tokenizer of bytes gives what transformers' own gives."""

from __future__ import annotations

import pytest
from transformers import ByT5Tokenizer

from tests.helpers.byte_tokenizer import ids, slow_ids, slow_tokens, tokens

TEXTS = [
    "",
    "plain words",
    "naïve 日本 🙂\n\t\x00",
    "ends</s>",
    "a </s> b",
    "<extra_id_0> and <extra_id_124>",
    "< pad >",
    "<pad>",
    "KEY 1",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("added", [[], ["KEY", "a"]])
def test_it_gives_the_tokens_and_ids_of_transformers(text: str, added: list[str]) -> None:
    tokenizer = ByT5Tokenizer()
    tokenizer.add_tokens(added)
    expected = slow_tokens(tokenizer, text)
    assert tokens(tokenizer, text) == expected
    assert tokens(tokenizer, text, split_special_tokens=True) == slow_tokens(tokenizer, text, split_special_tokens=True)
    assert ids(tokenizer, expected) == slow_ids(tokenizer, expected)
    assert ids(tokenizer, ["two letters"]) == slow_ids(tokenizer, ["two letters"])
    assert ids(tokenizer, "</s>") == slow_ids(tokenizer, "</s>") == 1
