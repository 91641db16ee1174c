"""A BPE vocabulary of a training's own: bytes at the bottom, so nothing is unknown; `</s>` ends every text, as T5 expects."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PAD, EOS, UNKNOWN = "<pad>", "</s>", "<unk>"


def learn(texts: Iterable[str], size: int, split: list[Any]) -> Tokenizer:
    """`split` are the pre-tokenizers that divide a text into words; the last of them writes bytes as letters."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, EOS, UNKNOWN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, tokenizer.token_to_id(EOS))]
    )
    return tokenizer


def kept(file: Path, learnt: Any) -> Tokenizer:
    """The tokenizer in the file; where there is none yet, what `learnt()` gives, kept there."""
    if not file.exists():
        learnt().save(str(file))
    return Tokenizer.from_file(str(file))


def for_transformers(tokenizer: Tokenizer) -> Any:
    """As plain AutoTokenizer loads it once it is saved."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )


class Pieces:
    """Text to tokens, fast: the tokenizer's answer for every word is kept.

    The tokenizer splits a text into words before it merges bytes, so a text's tokens are its words' tokens in a row. `split`
    must split where the tokenizer does; the tests of each training compare both on every kind of example.
    """

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
