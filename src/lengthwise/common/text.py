"""Texts that sequences are cut from, and the lengths that are asked for; needs no torch.

Without a text of the user's, prose that ships with the package serves: about 110,000 characters written for it.
"""

from __future__ import annotations

import io
import operator
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import SupportsIndex

from lengthwise.common.files import read_file
from lengthwise.errors import BadInput, require

PROSE = ("harbour.txt", "railway.txt", "workshop.txt")
LONGEST = 100_000_000  # tokens


def shipped_prose() -> str:
    """The prose that ships with the package."""
    folder = resources.files("lengthwise.common") / "prose"
    return "\n\n".join((folder / name).read_text(encoding="ascii").strip() for name in PROSE)


def read_texts(paths: Sequence[str | Path]) -> str:
    """The texts of several files, one after the other."""
    texts = []
    for path in paths:
        try:
            texts.append(io.TextIOWrapper(io.BytesIO(read_file(path)), encoding="utf-8").read())
        except OSError as error:
            raise BadInput(f"cannot read the text file {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8 text") from None
    return "\n\n".join(texts)


def text_or_prose(text: str | None, files: Sequence[str | Path]) -> tuple[str, str]:
    """The name and the content of the text to use: a given text, files, or the prose that ships with the package."""
    require(text is None or not files, "give a text or files, not both")
    if files:
        return ", ".join(Path(path).name for path in files), read_texts(files)
    return ("given text", text) if text is not None else ("shipped prose", shipped_prose())


def parse_lengths(value: object) -> list[int]:
    """Lengths in tokens as Python integers, from one number or several of any library."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) != 0:
        return [_length(length) for length in value]
    return [_length(value)]


def _length(value: object) -> int:
    # Python and torch take true for 1
    is_bool = "bool" in str(getattr(value, "dtype", type(value)))
    if isinstance(value, SupportsIndex) and not is_bool:
        with suppress(TypeError):
            tokens = operator.index(value)
            # Making the text alone would take hours
            require(tokens >= 1, f"a length must be at least 1 token, not {tokens}")
            require(tokens <= LONGEST, f"a length of {tokens:,} tokens is beyond all models; give at most {LONGEST:,}")
            return tokens
    raise BadInput(f"a length is a whole number of tokens, not {value!r}")
