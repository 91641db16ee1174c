"""What stands behind the names of methods that were read from files: files change, and a run must not mix two of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from torch import nn

from lengthwise.methods.temperature.aligned import Alignment


def documents(methods: Iterable[object]) -> Any:
    """Alignments as JSON and what other methods have learnt as a digest; a list where there are several, None where none."""
    found: list[Any] = []
    for method in methods:
        if isinstance(method, Alignment):
            found.append(method.to_json())
        elif isinstance(method, nn.Module):
            found.append({"weights": _digest(method)})
    return found if len(found) > 1 else next(iter(found), None)


def _digest(method: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(method.state_dict().items()):
        digest.update(name.encode())
        # numpy knows no bfloat16
        digest.update(value.detach().cpu().double().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
