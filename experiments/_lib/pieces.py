"""Text to tokens, fast: the tokenizer's answer for every word is kept.

The tokenizer splits a text into words before it merges bytes, so a text's tokens are its words' tokens in a row. The expression
that is given must split where the tokenizer does; the tests of each training compare both on every kind of example.
"""

from __future__ import annotations

import re
from typing import Any


class Pieces:
    """Tokens of texts, from a memory of words."""

    def __init__(self, tokenizer: Any, split: re.Pattern[str]) -> None:
        self.tokenizer, self.split = tokenizer, split
        self.eos: int = tokenizer.token_to_id("</s>")
        self._words: dict[str, list[int]] = {}
        self._sizes: dict[str, int] = {}

    def tokens(self, text: str) -> list[int]:
        tokens: list[int] = []
        words = self._words
        for word in self.split.findall(text):
            known = words.get(word)
            if known is None:
                known = words[word] = self.tokenizer.encode(word, add_special_tokens=False).ids
            tokens += known
        return tokens

    def beginning(self, text: str, tokens: int, size: int) -> str:
        """As many first words as take at most so many tokens, a space before them, of the text's `size`."""
        words = text.split(" ")
        words = words[: len(words) * tokens // size + 1]
        while words and len(self.tokens(" " + " ".join(words))) > tokens:
            words.pop()
        return " ".join(words)

    def size(self, text: str) -> int:
        """Tokens of a text that starts and ends where a word does; for sentences that come again and again."""
        size = self._sizes.get(text)
        if size is None:
            size = self._sizes[text] = len(self.tokens(text))
        return size
