"""Triton's interpreter at twice its speed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("triton")
import triton.language as tl
from triton.runtime import interpreter

from lengthwise.attention.triton import tiles


@pytest.fixture(autouse=True)
def _language_patched_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The interpreter puts its own functions into `triton.language` at every call of every device function; once will do."""
    if not tiles.INTERPRETED:
        yield
        return
    # Of our kernels, which say `tl`, and of Triton's library, which says `core`
    scopes = [interpreter._patch_lang(function.fn) for function in (tiles.sums, tl.zeros_like)]
    monkeypatch.setattr(interpreter, "_patch_lang", lambda _: interpreter._LangPatchScope())
    yield
    for scope in reversed(scopes):
        scope.restore()
