"""A BPE vocabulary of 16,384 tokens for prose and code.

Every newline and every digit is a token of its own, and so is a run of spaces, so that the tokens of a text are the tokens of
its lines with newlines between, and an indented line without its indentation is the same tokens less the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, pre_tokenizers

from experiments._lib import bpe

SIZE = 16384
# Ranges and no classes such as \w, which Python and the tokenizer's own engine understand differently
LETTERS = "A-Za-z\u00c0-\u1fff\u2c00-\U0010ffff"
CURLY = "\u2019"  # an apostrophe of printed books
SPACES = r"\t\x0b\x0c\r"
# A space, a dot or a low line belongs to the word behind it; 's and the like are words
RULE = rf"\n|[0-9]|['{CURLY}](?:[stmd]|re|ve|ll)(?![{LETTERS}])|[ ._]?[{LETTERS}]+| ?[^ \n{SPACES}0-9{LETTERS}]+| +|[{SPACES}]+"
SPLIT = re.compile(RULE)


def learn(texts: Iterable[str], size: int = SIZE) -> Tokenizer:
    split = [
        pre_tokenizers.Split(Regex(RULE), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    return bpe.learn(texts, size, split)
