"""Chinese novels as chapters of tokens for GAU-alpha, and which of them training never sees.

A fifth of the chapters is held out, decided by their names, so that every run draws the same line. The paper has patents and
holds out a fifth as well.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import BertTokenizer

from lengthwise.errors import require

WANTED = "--data takes a folder with gau_vocab/vocab.txt and zh/*.txt"
HEADING = re.compile(r"^\s*第[一二三四五六七八九十百零〇]+回", re.MULTILINE)


@dataclass(frozen=True)
class Chapter:
    name: str  # novel/number
    tokens: NDArray[np.int64]

    @property
    def held_out(self) -> bool:
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 5 == 0


@dataclass(frozen=True)
class Special:
    """Token numbers that mean something to the model."""

    cls: int
    sep: int
    mask: int
    vocabulary: int  # all tokens

    @classmethod
    def of(cls, tokenizer: Any) -> Special:
        return cls(tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id, len(tokenizer))


def tokenizer_of(data: Path) -> Any:
    file = data / "gau_vocab" / "vocab.txt"
    require(file.is_file(), f"there is no {file}; {WANTED}")
    return BertTokenizer(str(file))


def chapters(data: Path, tokenizer: Any) -> list[Chapter]:
    novels = sorted((data / "zh").glob("*.txt"))
    require(bool(novels), f"{data / 'zh'} holds no novel; {WANTED}")
    texts = {novel.stem: divided(novel.read_text(encoding="utf-8")) for novel in novels}
    named = [(f"{name}/{at}", text) for name, parts in texts.items() for at, text in enumerate(parts)]
    ids = tokenizer([text for _, text in named], add_special_tokens=False, verbose=False).input_ids
    return [Chapter(name, np.array(tokens, np.int64)) for (name, _), tokens in zip(named, ids, strict=True) if tokens]


def held_out(data: Path, length: int) -> list[Chapter]:
    """Held-out chapters of at least `length` tokens, [CLS] and [SEP] included."""
    long = [one for one in chapters(data, tokenizer_of(data)) if one.held_out and len(one.tokens) >= length - 2]
    require(bool(long), f"no held-out chapter has {length} tokens; ask for fewer, or add longer texts to {data / 'zh'}")
    return long


def divided(novel: str) -> list[str]:
    """At the headings; the first part is what stands before them all. Line ends and spaces mean nothing in Chinese."""
    starts = [0, *(match.start() for match in HEADING.finditer(novel)), len(novel)]
    parts = (re.sub(r"\s+", "", novel[a:b]) for a, b in pairwise(starts))
    return [part for part in parts if part]


def beginning(chapter: Chapter, length: int, special: Special) -> NDArray[np.int64]:  # [length]
    """The first tokens of a chapter between [CLS] and [SEP], as in training."""
    inner = chapter.tokens[: length - 2]
    require(len(inner) == length - 2, f"{chapter.name} has {len(inner)} tokens, too few for an input of {length}")
    return np.concatenate([[special.cls], inner, [special.sep]])
