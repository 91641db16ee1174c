"""Triton's interpreter at three times its speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("triton")
import triton.language as tl
from triton.runtime import interpreter

from lengthwise.attention.triton import tiles


@pytest.fixture(autouse=True)
def _quick_interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The interpreter without work that changes no result."""
    if not tiles.INTERPRETED:
        yield
        return
    # It puts its functions into `triton.language` at every call of every device function; once will do.
    # Of our kernels, which say `tl`, and of Triton's library, which says `core`
    scopes = [interpreter._patch_lang(function.fn) for function in (tiles.sums, tl.zeros_like)]
    monkeypatch.setattr(interpreter, "_patch_lang", lambda _: interpreter._LangPatchScope())
    # Every sum and product of integers is looked at in 64 bits, for an assertion that only its debug mode makes
    builder = interpreter.interpreter_builder
    assert not builder.options.debug
    monkeypatch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))
    yield
    for scope in reversed(scopes):
        scope.restore()
