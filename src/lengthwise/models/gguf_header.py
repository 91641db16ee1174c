"""What a GGUF file says of its tokenizer that transformers does not read: whether texts begin with a token.

A header is a list of keys and values; it is walked without keeping the vocabulary, which takes the package gguf seconds.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

ADD_BOS = "tokenizer.ggml.add_bos_token"
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a number, by its kind
STRING, ARRAY = 8, 9


def begin_texts_as_stored(tokenizer: Any, path: Path) -> None:
    """Let the tokenizer put its first token before texts where the file asks for it, as Gemma's do, and it does not yet."""
    first = tokenizer.bos_token_id
    if not adds_bos(path) or first is None or tokenizer("a").input_ids[:1] == [first]:
        return
    from tokenizers.processors import Sequence, TemplateProcessing

    token, backend = tokenizer.bos_token, tokenizer.backend_tokenizer
    begins = TemplateProcessing(single=f"{token} $A", pair=f"{token} $A $B:1", special_tokens=[(token, first)])
    before = backend.post_processor
    backend.post_processor = begins if before is None else Sequence([before, begins])


def adds_bos(path: Path) -> bool:
    """Whether the header says so; a file that says nothing is left as transformers reads it."""
    with path.open("rb") as file:
        _, _, _, count = struct.unpack("<4sIQQ", file.read(24))
        for _ in range(count):
            key = file.read(_number(file, "<Q")).decode(errors="replace")
            kind = _number(file, "<I")
            if key == ADD_BOS:
                return bool(_number(file, "<?"))
            _skip(file, kind)
    return False


def _number(file: BinaryIO, kind: str) -> int:
    (value,) = struct.unpack(kind, file.read(struct.calcsize(kind)))
    return int(value)


def _skip(file: BinaryIO, kind: int) -> None:
    """Pass over a value."""
    if kind == ARRAY:
        inner, count = _number(file, "<I"), _number(file, "<Q")
        if inner in SIZES:
            file.seek(SIZES[inner] * count, 1)
        else:
            for _ in range(count):
                _skip(file, inner)
    else:
        file.seek(_number(file, "<Q") if kind == STRING else SIZES[kind], 1)
