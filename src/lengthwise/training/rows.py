"""Documents as rows of tokens: one after the other, the end-of-text token between them, cut into rows of one size."""

from __future__ import annotations

import hashlib
import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lengthwise.common.text import read_texts
from lengthwise.errors import BadInput, require
from lengthwise.models.load import check_tokenizer, check_tokens, reason_of
from lengthwise.training.settings import Settings

# How `datasets` reads a file, by the end of its name
BUILDERS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}
# Files that are named in one line
NAMED = 4


def check_files(paths: Sequence[str]) -> None:
    """Refuse files without text, also where no step will reach them: a run names every file it was asked to learn from."""
    for path in paths:
        require(bool(read_texts([path]).strip()), f"{path} holds no text; leave it out")


def rows_of(settings: Settings, tokenizer: Any, words: int, tokens: int, most: int) -> Tensor:  # [rows, tokens]
    """Rows of tokens cut from the documents, at most `most`, so that nothing is read that no step will see.

    `words` is the size of the model's vocabulary.
    """
    end = tokenizer.eos_token_id
    require(end is not None, "this tokenizer has no end-of-text token to put between documents; give it an eos_token")
    check_tokenizer(tokenizer, words)
    packed, length = [], 0
    for text in documents(settings):
        # Tokenizers warn that a text is longer than the model; that is what we are here for
        ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        packed.append(torch.tensor([*ids, end], dtype=torch.int32))
        length += len(packed[-1])
        if length >= most * tokens:
            break
    if unread := settings.data[len(packed) :]:
        more = [f"and {len(unread) - NAMED} more"] if len(unread) > NAMED else []
        named, them = ", ".join([*unread[:NAMED], *more]), "it" if len(unread) == 1 else "them"
        warnings.warn(f"the steps end before they reach {named}: the model will learn nothing of {them}", stacklevel=2)
    count = min(most, length // tokens)
    short = f"the text has {length} tokens, and one row takes {tokens}"
    require(count > 0, f"{short}; give more text (--data, --dataset) or a smaller --train-length")
    rows = torch.cat(packed)[: count * tokens].view(count, tokens)
    check_tokens(rows, words)
    return rows


def digest(rows: Tensor) -> str:
    """A short hash that tells rows of other text, or of another tokenizer, apart."""
    return hashlib.sha256(rows.numpy().tobytes()).hexdigest()[:16]


def documents(settings: Settings) -> Iterator[str]:
    """The texts that a run learns from, one at a time."""
    if settings.dataset is None:
        yield from (read_texts([path]) for path in settings.data)
        return
    if importlib.util.find_spec("datasets") is None:
        raise BadInput("reading a dataset needs the package datasets; pip install 'lengthwise[train]'")
    import datasets

    name, path = settings.dataset, Path(settings.dataset)
    source: dict[str, Any] = {"path": name, "name": settings.dataset_config}
    if path.is_file():
        known = ", ".join(BUILDERS)
        require(path.suffix in BUILDERS, f"cannot tell what {name} holds from its name; it must end in one of {known}")
        source = {"path": BUILDERS[path.suffix], "data_files": name}
    try:
        # Streaming: of a large dataset only what the steps need comes over the line
        for document in datasets.load_dataset(**source, split=settings.split, streaming=True):
            text = _text(document, settings.text_field, name)
            # Empty lines of a file, of which ends of text alone would be left
            if text.strip():
                yield text
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"cannot read the dataset {name}: {reason_of(error)}") from error


def _text(document: dict[str, Any], field: str, dataset: str) -> str:
    text = document.get(field)
    if not isinstance(text, str):
        known = ", ".join(key for key, value in document.items() if isinstance(value, str)) or "none"
        raise BadInput(f"the dataset {dataset} has no text in {field!r}; columns with text: {known} (--text-field)")
    return text
