"""Count the tokens of a long text from those of its words, exactly, because tokenising it takes longer than making it may.

    tokens(text) = tokens(first and last word) + sum over the other words of (tokens("a" + word) - tokens("a"))

A word here begins with its space. The sum is exact where no token of the vocabulary has a space behind another character: every
tokenisation then breaks before the space, whatever stands on both sides. A character that some token does have before a space
ends no word. Words that come again are tokenised once for as long as their tokenizer lives, rare ones many together; of a text
that is counted again with small changes, only these.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from lengthwise.common.text import shipped_prose

SHORT = 2000  # letters up to which a text is simply tokenised
MOST = 200_000  # words that are kept
OFTEN = 4  # times that a word stands in a text from which on it is quicker to tokenise it alone
BEGINNING = 4  # letters of a special token that are looked for first
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
        # Of thousands (Gemma's <unused0> ...) the first letters are looked for before the tokens
        self.special = _by_beginning(_special_tokens(tokenizer)) if self.ends else {}
        self.between = re.compile(f" (?<=[{re.escape(''.join(self.ends))}] )") if self.ends else None
        self.tokens: dict[str, int] = {}
        self.met: Counter[str] = Counter()
        self.last = "", 0  # the words of the text before but its first and last, and their tokens
        sample = shipped_prose()[: 2 * SHORT]
        if self.whole(tokenizer, sample) != len(tokenizer(sample, verbose=False).input_ids):
            self.ends, self.between = frozenset(), None

    def whole(self, tokenizer: Any, text: str) -> int:
        if not self._has_words(text):
            return len(tokenizer(text, verbose=False).input_ids)
        start = self._next(text, 0)
        end = max(start, self._previous(text, len(text)))
        # Special tokens, or what else a tokenizer adds, stand before the first and behind the last
        return len(tokenizer(text[:start] + text[end:], verbose=False).input_ids) + self._sum(tokenizer, text[start:end])

    def added(self, tokenizer: Any, text: str) -> int:
        start = self._next(text, 0) if self._has_words(text) else len(text)
        if start == len(text):
            return _sizes(tokenizer, [text])[0]
        anchor, with_first = _sizes(tokenizer, [ANCHOR, ANCHOR + text[:start]])
        return with_first - anchor + self._sum(tokenizer, text[start:])

    def _has_words(self, text: str) -> bool:
        """Whether a text can be counted by words: a special token may take the white space around it, or begin a text anew."""
        beginnings = (tokens for beginning, tokens in self.special.items() if beginning in text)
        return self.between is not None and not any(token in text for tokens in beginnings for token in tokens)

    def _next(self, text: str, start: int) -> int:
        """Where the first word begins that does not before `start`; the end where there is none."""
        match = self.between.search(text, start) if self.between else None
        return match.start() if match else len(text)

    def _previous(self, text: str, end: int) -> int:
        """Where the last word begins that does before `end`; 0 where there is none."""
        at = text.rfind(" ", 0, end)
        while at > 0 and text[at - 1] not in self.ends:
            at = text.rfind(" ", 0, at)
        return max(at, 0)

    def _sum(self, tokenizer: Any, text: str) -> int:
        """Tokens of the words of a text; if most of it is as in the one before, only of those that come or go."""
        before, counted = self.last
        start = self._previous(text, _shared(text, before))
        shared = _shared(text[start:][::-1], before[start:][::-1])
        # The letter before a word tells that it is one, and must be shared as well
        end = len(text) - self._next(text, len(text) - shared + 1)
        # Two tallies of what differs are made in less time than one of the whole only where little does
        if 2 * (start + end) > len(text):
            come, go = (self._tally(some[start : len(some) - end]) for some in (text, before))
            total = counted + self._tokens(tokenizer, come - go) - self._tokens(tokenizer, go - come)
        else:
            total = self._tokens(tokenizer, self._tally(text))
        self.last = text, total
        return total

    def _tally(self, text: str) -> Counter[str]:
        """How often each word stands in a text that begins with one, without the spaces before them."""
        return Counter(self.between.split(text[1:]) if self.between and text else [])

    def _tokens(self, tokenizer: Any, tally: Counter[str]) -> int:
        if len(self.tokens) + len(self.met) > MOST:
            self.tokens.clear()
            self.met.clear()
        unknown = [word for word in tally if word not in self.tokens]
        # A prompt may be counted twice, so a word of two texts is not yet one that comes again
        often = {word for word in unknown if tally[word] >= OFTEN or self.met[word] > 1}
        again, rare = list(often), [word for word in unknown if word not in often]
        by_times = {times: _joined(word for word in rare if tally[word] == times) for times in range(1, OFTEN)}
        joined = [(times, text) for times, texts in by_times.items() for text in texts]
        asked = [ANCHOR, *(text for _, text in joined), *(f"{ANCHOR} {word}" for word in again)]
        anchor, *sizes = _sizes(tokenizer, asked)
        together = sum(times * (size - anchor) for (times, _), size in zip(joined, sizes, strict=False))
        self.tokens.update(zip(again, (size - anchor for size in sizes[len(joined) :]), strict=True))
        self.met.update(rare)
        known = ((self.tokens.get(word, 0), times) for word, times in tally.items())
        return together + sum(tokens * times for tokens, times in known)


def _shared(text: str, other: str) -> int:
    """How many letters two texts begin with alike."""
    low, high = 0, min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if text[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _joined(words: Iterable[str]) -> list[str]:
    """The words in texts of some length: a tokenizer takes longer for one that is very long."""
    texts, letters = [[ANCHOR]], 0
    for word in words:
        if letters > SHORT:
            texts.append([ANCHOR])
            letters = 0
        texts[-1].append(word)
        letters += len(word)
    return [" ".join(text) for text in texts]


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


def _by_beginning(tokens: list[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for token in tokens:
        groups.setdefault(token[:BEGINNING], []).append(token)
    return groups


def _sizes(tokenizer: Any, texts: list[str]) -> list[int]:
    """Tokens of several texts, without special tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.padding or backend.truncation:
        return [len(tokenizer(text, add_special_tokens=False, verbose=False).input_ids) for text in texts]
    # Half the time of the tokenizer's own call, which also tells where each token stands
    return [len(encoding) for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
