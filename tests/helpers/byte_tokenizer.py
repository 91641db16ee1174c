"""The tests' tokenizer, made quick: transformers' own goes through a text byte by byte in Python."""

from __future__ import annotations

from typing import Any

from transformers import ByT5Tokenizer

slow_tokens, slow_ids = ByT5Tokenizer.tokenize, ByT5Tokenizer.convert_tokens_to_ids


def tokens(tokenizer: ByT5Tokenizer, text: str, **options: Any) -> list[str]:
    if any(token in text for token in tokenizer.added_tokens_encoder):
        return slow_tokens(tokenizer, text, **options)
    return list(text.encode().decode("latin-1"))


def ids(tokenizer: ByT5Tokenizer, tokens: str | list[str]) -> Any:
    known = {chr(byte): tokenizer.offset + byte for byte in range(256)} | tokenizer.added_tokens_encoder
    if isinstance(tokens, str) or not known.keys() >= set(tokens):
        return slow_ids(tokenizer, tokens)
    return [known[token] for token in tokens]


def make_quick() -> None:
    ByT5Tokenizer.tokenize, ByT5Tokenizer.convert_tokens_to_ids = tokens, ids
