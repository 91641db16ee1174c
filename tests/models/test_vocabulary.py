"""Tokenizers and tokens that cannot be the model's own are refused."""

from __future__ import annotations

import pytest
import torch
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.models.vocabulary import check_tokenizer, check_tokens


def test_a_tokenizer_fits_as_many_words_or_a_few_more(tokenizer: ByT5Tokenizer) -> None:
    check_tokenizer(tokenizer, tokenizer.vocab_size)
    check_tokenizer(tokenizer, len(tokenizer) + 64)
    with pytest.raises(BadInput, match="and the model knows 100 tokens only; this is another model's tokenizer"):
        check_tokenizer(tokenizer, 100)
    with pytest.raises(BadInput, match="tokens only, and the model knows 32000; this is another model's tokenizer"):
        check_tokenizer(tokenizer, 32000)


def test_a_token_outside_the_table_is_named() -> None:
    check_tokens(torch.tensor([[0, 9]]), 10)
    check_tokens(torch.tensor([], dtype=torch.long), 10)
    with pytest.raises(BadInput, match="the text has token 10, and the model knows 10 tokens only"):
        check_tokens(torch.tensor([[0, 10]]), 10)
