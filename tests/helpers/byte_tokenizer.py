"""The tests' tokenizer, made quick: transformers' own goes through a text byte by byte in Python."""

from __future__ import annotations

from typing import Any

from transformers import ByT5Tokenizer

slow_tokens, slow_ids = ByT5Tokenizer.tokenize, ByT5Tokenizer.convert_tokens_to_ids
BYTES = {chr(byte): byte + 3 for byte in range(256)}  # pad, end and unknown come first


def tokens(tokenizer: ByT5Tokenizer, text: str, **options: Any) -> list[str]:
    # Not added_tokens_encoder, which sorts them at every call
    if any(token in text for token in tokenizer._added_tokens_encoder):
        return slow_tokens(tokenizer, text, **options)
    return list(text.encode().decode("latin-1"))


def ids(tokenizer: ByT5Tokenizer, tokens: str | list[str]) -> Any:
    if not isinstance(tokens, str):
        try:
            return [BYTES[token] for token in tokens]
        except KeyError:
            pass
    return slow_ids(tokenizer, tokens)


def make_quick() -> None:
    ByT5Tokenizer.tokenize, ByT5Tokenizer.convert_tokens_to_ids = tokens, ids
