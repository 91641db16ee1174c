"""Likelihoods on disk."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput

Array = NDArray[np.float32]


def save_array(file: Path, values: Tensor) -> None:
    content = io.BytesIO()
    np.save(content, values.float().numpy(), allow_pickle=False)
    write_whole(file, content.getvalue())


def load_array(file: Path) -> Array:
    try:
        return np.asarray(np.load(file, allow_pickle=False), dtype=np.float32)
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(
            f"cannot read {file}: {error}; remove it, and its line of cells.jsonl, to have it measured again"
        ) from None
