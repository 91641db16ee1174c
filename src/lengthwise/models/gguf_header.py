"""What a GGUF file says of its tokenizer that transformers does not read: how texts begin, and what scores mean.

`parsed_once` spares what transformers reads too often.

A header is a list of keys and values; it is walked without keeping the vocabulary, which takes the package gguf seconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any, BinaryIO

from lengthwise.common.formats import parse_json

ADD_BOS, KIND = "tokenizer.ggml.add_bos_token", "tokenizer.ggml.model"
BYTE_PAIRS = "llama"  # SentencePiece's byte pairs, whose scores are the order of merges; T5's are of another kind
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a number, by its kind
STRING, ARRAY = 8, 9
_one_at_a_time = RLock()


@contextmanager
def parsed_once() -> Iterator[None]:
    """Parse a file's header, and make the table of a family's names, once a model: transformers does so 4 and 400 times."""
    import gguf

    with _one_at_a_time:
        kept = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
        try:
            for name, original in kept.items():
                setattr(gguf, name, cache(original))
            yield
        finally:
            for name, original in kept.items():
                setattr(gguf, name, original)


def read_as_stored(tokenizer: Any, path: Path) -> None:
    """Let the tokenizer read texts as the file says."""
    merge_as_stored(tokenizer, path)
    begin_texts_as_stored(tokenizer, path)


def begin_texts_as_stored(tokenizer: Any, path: Path) -> None:
    """Let the tokenizer put its first token before texts where the file asks for it, as Gemma's do, and it does not yet."""
    first = tokenizer.bos_token_id
    if header_value(path, ADD_BOS) is not True or first is None or tokenizer("a").input_ids[:1] == [first]:
        return
    from tokenizers.processors import Sequence, TemplateProcessing

    token, backend = tokenizer.bos_token, tokenizer.backend_tokenizer
    begins = TemplateProcessing(single=f"{token} $A", pair=f"{token} $A $B:1", special_tokens=[(token, first)])
    before = backend.post_processor
    backend.post_processor = begins if before is None else Sequence([before, begins])


def merge_as_stored(tokenizer: Any, path: Path) -> None:
    """Let the tokenizer merge pieces in the order of their scores where the file asks for it, as Gemma's do.

    Some versions of transformers take the scores for Unigram's log probabilities, and so cut words into short pieces.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or header_value(path, KIND) != BYTE_PAIRS:
        return
    from tokenizers.models import BPE, Unigram

    if not isinstance(backend.model, Unigram):
        return
    stored = parse_json(backend.to_str())["model"]
    ids = {piece: at for at, (piece, _) in enumerate(stored["vocab"])}
    ranked = sorted(stored["vocab"], key=lambda entry: -entry[1])
    parts = ((piece[:at], piece[at:]) for piece, _ in ranked for at in range(1, len(piece)))
    merges = [(left, right) for left, right in parts if left in ids and right in ids]
    unknown = None if stored["unk_id"] is None else stored["vocab"][stored["unk_id"]][0]
    backend.model = BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=stored["byte_fallback"])


def header_value(path: Path, wanted: str) -> str | bool | None:
    """What the header has under a key of a text or a truth value; None where it says nothing."""
    with path.open("rb") as file:
        _, _, _, count = struct.unpack("<4sIQQ", file.read(24))
        for _ in range(count):
            key = file.read(_number(file, "<Q")).decode(errors="replace")
            kind = _number(file, "<I")
            if key == wanted:
                return file.read(_number(file, "<Q")).decode() if kind == STRING else bool(_number(file, "<?"))
            _skip(file, kind)
    return None


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
