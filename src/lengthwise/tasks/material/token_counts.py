"""Count the tokens of a long text from those of its words, exactly, because tokenising it takes longer than making it may.

    tokens(text) = tokens(first and last word) + sum over the other words of (tokens("a" + word) - tokens("a"))

A word here begins with its space. The sum is exact where no token of the vocabulary has a space behind another character: every
tokenisation then breaks before the space, whatever stands on both sides. A character that some token does have before a space
ends no word. Words that come again are tokenised once for as long as their tokenizer lives, rare ones many together; of a text
that is counted again with small changes, only these.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from lengthwise.common.text import shipped_prose

SHORT = 2000  # letters up to which a text is simply tokenised
MOST = 200_000  # words that are kept
SAME = 100  # words that no two texts begin or end with but those that are counted again
OFTEN = 4  # times that a word stands in a text from which on it is quicker to tokenise it alone
ANCHOR = "a"
BYTE_LEVEL_SPACE, SENTENCEPIECE_SPACE = "\u0120", "\u2581"
VISIBLE = frozenset(string.ascii_letters + string.digits + string.punctuation)


def token_count(tokenizer: Any, text: str) -> int:
    """Tokens of a text, special tokens included."""
    if len(text) <= SHORT:
        return len(tokenizer(text, verbose=False).input_ids)
    return _counts_of(tokenizer).whole(tokenizer, text)


def added_tokens(tokenizer: Any, text: str) -> int:
    """Tokens that a text adds to what stands before it: exactly if it begins with a space, else about."""
    if len(text) <= SHORT:
        return _sizes(tokenizer, [text])[0]
    return _counts_of(tokenizer).added(tokenizer, text)


class WordCounts:
    """The tokens of the words that one tokenizer has met; it comes with every call, so that none is kept alive."""

    def __init__(self, tokenizer: Any) -> None:
        self.vocabulary = _size(tokenizer)
        self.ends = _word_ends(tokenizer)
        self.special = _special_tokens(tokenizer) if self.ends else []
        self.tokens: dict[str, int] = {}
        self.met: Counter[str] = Counter()
        self.last: tuple[list[str], int] = [], 0  # the words of the text before, and their tokens
        sample = shipped_prose()[: 2 * SHORT]
        if self.whole(tokenizer, sample) != len(tokenizer(sample, verbose=False).input_ids):
            self.ends = frozenset()

    def whole(self, tokenizer: Any, text: str) -> int:
        first, *words = self._words(text)
        # Special tokens, or what else a tokenizer adds, stand before the first and behind the last
        ends = first + "".join(words[-1:])
        return len(tokenizer(ends, verbose=False).input_ids) + (self._sum(tokenizer, words[:-1]) if len(words) > 1 else 0)

    def added(self, tokenizer: Any, text: str) -> int:
        words = list(self._words(text))
        return self._sum(tokenizer, words) if len(words) > 1 else _sizes(tokenizer, words)[0]

    def _words(self, text: str) -> Iterator[str]:
        # A special token may take the white space around it, or have what follows read as the beginning of a text
        if not self.ends or any(token in text for token in self.special):
            yield text
            return
        word, *following = text.split(" ")
        for part in following:
            if word[-1:] in self.ends:
                yield word
                word = f" {part}"
            else:
                word = f"{word} {part}"
        yield word

    def _sum(self, tokenizer: Any, words: list[str]) -> int:
        """Tokens of all these words; of a text that begins or ends as the one before, only of those that come or go."""
        before, counted = self.last
        if words[:SAME] == before[:SAME] or words[-SAME:] == before[-SAME:]:
            come, go = Counter(words), Counter(before)
            total = counted + self._tokens(tokenizer, come - go) - self._tokens(tokenizer, go - come)
        else:
            total = self._tokens(tokenizer, Counter(words))
        self.last = words, total
        return total

    def _tokens(self, tokenizer: Any, tally: Counter[str]) -> int:
        if len(self.tokens) + len(self.met) > MOST:
            self.tokens.clear()
            self.met.clear()
        unknown = [word for word in tally if word not in self.tokens]
        # A prompt may be counted twice, so a word of two texts is not yet one that comes again
        often = {word for word in unknown if tally[word] >= OFTEN or self.met[word] > 1}
        again, rare = list(often), [word for word in unknown if word not in often]
        joined = _joined(word * tally[word] for word in rare)
        anchor, *sizes = _sizes(tokenizer, [ANCHOR, *joined, *(ANCHOR + word for word in again)])
        together = sum(sizes[: len(joined)]) - anchor * len(joined)
        self.tokens.update(zip(again, (size - anchor for size in sizes[len(joined) :]), strict=True))
        self.met.update(rare)
        known = ((self.tokens.get(word, 0), times) for word, times in tally.items())
        return together + sum(tokens * times for tokens, times in known)


def _joined(words: Iterable[str]) -> list[str]:
    """The words in texts of some length: a tokenizer takes longer for one that is very long."""
    texts, letters = [[ANCHOR]], 0
    for word in words:
        if letters > SHORT:
            texts.append([ANCHOR])
            letters = 0
        texts[-1].append(word)
        letters += len(word)
    return ["".join(text) for text in texts]


_COUNTS: WeakKeyDictionary[Any, WordCounts] = WeakKeyDictionary()


def _counts_of(tokenizer: Any) -> WordCounts:
    counts = _COUNTS.get(tokenizer)
    # A tokenizer may have been given further tokens
    if counts is None or counts.vocabulary != _size(tokenizer):
        counts = _COUNTS[tokenizer] = WordCounts(tokenizer)
    return counts


def _size(tokenizer: Any) -> int:
    return len(tokenizer) if hasattr(tokenizer, "__len__") else 0


def _word_ends(tokenizer: Any) -> frozenset[str]:
    """The visible ASCII characters that no token has before a space; none where letters are not among them."""
    if not hasattr(tokenizer, "get_vocab"):
        return frozenset()
    written = "".join(tokenizer.convert_ids_to_tokens(tokenizer("a b", add_special_tokens=False).input_ids))
    space = next((sign for sign in BYTE_LEVEL_SPACE + SENTENCEPIECE_SPACE if sign in written), " ")
    across = (token.split(space)[:-1] for token in tokenizer.get_vocab() if space in token[1:])
    ends = VISIBLE - {part[-1] for parts in across for part in parts if part}
    return ends if ANCHOR in ends else frozenset()


def _special_tokens(tokenizer: Any) -> list[str]:
    added = tokenizer.added_tokens_decoder.values()
    return [str(token) for token in added if token.special or token.lstrip or token.rstrip or " " in str(token)]


def _sizes(tokenizer: Any, texts: list[str]) -> list[int]:
    """Tokens of several texts, without special tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.padding or backend.truncation:
        return [len(tokenizer(text, add_special_tokens=False, verbose=False).input_ids) for text in texts]
    # Half the time of the tokenizer's own call, which also tells where each token stands
    return [len(encoding) for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
