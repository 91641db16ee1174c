"""Ask a model in the form of a chat: every prompt becomes a user's message in its tokenizer's chat template.

What the template adds counts within a prompt's length, and truncation keeps it.
"""

from __future__ import annotations

import re
from datetime import datetime
from itertools import takewhile
from typing import Any

from lengthwise.errors import BadInput, require

MARK = "<the message stands here>"
# What a template that tells today's date tells, so that a run can go on another day; Llama's own where there is no clock
DAY = datetime(2024, 7, 26)
CLOCK = re.compile(r"strftime_now\(\s*(['\"])(?P<format>.*?)\1\s*\)")


class ChatTokenizer:
    """A tokenizer that puts what it reads into a chat template; without special tokens, and for all else, the one it was."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.before, self.after = _template_parts(tokenizer)

    def __call__(self, text: str, add_special_tokens: bool = True, **options: Any) -> Any:
        # A template writes special tokens itself
        asked = f"{self.before}{text}{self.after}" if add_special_tokens else text
        return self.tokenizer(asked, add_special_tokens=False, **options)

    def __len__(self) -> int:
        return len(self.tokenizer)

    def __getattr__(self, name: str) -> Any:
        # Pickling asks before there is a tokenizer
        if name == "tokenizer":
            raise AttributeError(name)
        return getattr(self.tokenizer, name)

    def message_span(self, ids: list[int]) -> tuple[int, int]:
        """Where the user's message starts and ends among the token ids of a whole prompt."""
        before, after = (self.tokenizer(text, add_special_tokens=False).input_ids for text in (self.before, self.after))
        # A space that ends what stands before melts into the message's first word
        same = takewhile(lambda pair: pair[0] == pair[1], zip(before, ids, strict=False))
        return sum(1 for _ in same), len(ids) - len(after)


def _template_parts(tokenizer: Any) -> tuple[str, str]:
    """The texts that a chat template writes before and after a user's message, the beginning of the answer included."""
    known = getattr(tokenizer, "chat_template", None)
    require(bool(known), "the model's tokenizer has no chat template, so there is no chat to ask in; leave --chat out")
    message = [{"role": "user", "content": MARK}]
    stopped = {"chat_template": CLOCK.sub(_fixed_date, known)} if isinstance(known, str) and CLOCK.search(known) else {}
    try:
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True, **stopped)
    # A template is a program of its makers', and may raise anything
    except Exception as error:
        raise BadInput(f"the model's chat template fails on a user's message: {' '.join(str(error).split())[:200]}") from None
    parts = str(text).split(MARK)
    require(len(parts) == 2, "the model's chat template does not write a user's message once, as it stands; leave --chat out")
    return parts[0], parts[1]


def _fixed_date(call: re.Match[str]) -> str:
    """The fixed date that replaces a template's call of the clock, in the format it asks for."""
    return repr(DAY.strftime(call["format"]))
