"""What a GGUF file says of its tokenizer that transformers does not read: how texts begin, and what scores mean.

gguf_rotation.py has what it says of its rotation.

`parsed_once` spares what transformers reads too often.

A header is a list of keys and values; it is walked without keeping the vocabulary, which takes the package gguf seconds.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any, BinaryIO, NamedTuple

from lengthwise.common.formats import parse_json

ALIGNMENT = "general.alignment"
ADD_BOS, KIND = "tokenizer.ggml.add_bos_token", "tokenizer.ggml.model"
BYTE_PAIRS = "llama"  # SentencePiece's byte pairs, whose scores are the order of merges; T5's are of another kind
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # of `struct`, by kind
SIZES = {kind: struct.calcsize(f"<{number}") for kind, number in NUMBERS.items()}
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


def header_value(path: Path, wanted: str) -> Any:
    """What the header has under a key of a text, a number or a truth value; None where it says nothing."""
    return read_header(path, lambda key: key == wanted).values.get(wanted)


def key_size(path: Path) -> int | None:
    """Numbers of a head's key, where the file tells."""
    return next(iter(read_header(path, lambda key: key.endswith(".attention.key_length")).values.values()), None)


class Header(NamedTuple):
    values: dict[str, Any]
    tensors: dict[str, tuple[int, int]]  # where each begins in the file, and how many numbers it has


def read_header(path: Path, wanted: Callable[[str], bool]) -> Header:
    """The values of wanted keys, texts and numbers, and all tensors."""
    values: dict[str, Any] = {}
    with path.open("rb") as file:
        _, _, tensors, keys = struct.unpack("<4sIQQ", file.read(24))
        for _ in range(keys):
            key = _text(file)
            kind = _number(file, "<I")
            if kind != ARRAY and (wanted(key) or key == ALIGNMENT):
                values[key] = _text(file) if kind == STRING else _number(file, f"<{NUMBERS[kind]}")
            else:
                _skip(file, kind)
        places = {}
        for _ in range(tensors):
            name = _text(file)
            count = math.prod(_number(file, "<Q") for _ in range(_number(file, "<I")))
            _number(file, "<I")
            places[name] = _number(file, "<Q"), count
        aligned = values.pop(ALIGNMENT, 32)
        begin = -(-file.tell() // aligned) * aligned
    return Header(values, {name: (begin + at, count) for name, (at, count) in places.items()})


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "<Q")).decode(errors="replace")


def _number(file: BinaryIO, kind: str) -> Any:
    (value,) = struct.unpack(kind, file.read(struct.calcsize(kind)))
    return value


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
