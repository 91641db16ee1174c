"""Whether a tokenizer and its tokens can be a model's own."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lengthwise.errors import require

FOREIGN = "this is another model's tokenizer, give its own"


def check_tokenizer(tokenizer: Any, words: int) -> None:
    """`words` the model knows. A tokenizer has as many, or less by what embeddings are padded with, which is a few percent."""
    # Without tokens added to it, which some tokenizers have and never make
    bare = tokenizer.vocab_size
    require(bare <= words, f"the tokenizer has {bare} tokens, and the model knows {words} tokens only; {FOREIGN}")
    all_of_them = len(tokenizer)
    require(2 * all_of_them > words, f"the tokenizer has {all_of_them} tokens only, and the model knows {words}; {FOREIGN}")


def check_tokens(ids: Tensor, words: int) -> None:
    largest = int(ids.max()) if ids.numel() else 0
    require(0 <= largest < words, f"the text has token {largest}, and the model knows {words} tokens only; {FOREIGN}")
