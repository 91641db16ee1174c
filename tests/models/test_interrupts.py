"""Ctrl-C at every line of entering and leaving `extend`: the plain model remains, and nothing is held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import lengthwise as lw
from lengthwise.models import patches
from lengthwise.models.snapshot import differences, state_of
from tests.conftest import logits, make, tokens
from tests.extended import LONG
from tests.helpers.interrupted import Interrupt

# What comes before the first line of `__enter__` was never entered, and before the first of `__exit__` ends with the object
pytestmark = pytest.mark.filterwarnings(r"ignore:extend\(\.\.\.\) does nothing", "ignore:an `extend` was dropped")

EVERY = 29  # lines between two interrupts of entering, and a few in leaving: each costs an `extend`


@pytest.fixture(autouse=True)
def _gradients() -> Iterator[None]:
    """An interrupt as `torch.no_grad` is left, before its first line, is PyTorch's to survive: gradients stay off."""
    yield
    torch.set_grad_enabled(True)


def lock_is_free() -> bool:
    free: list[bool] = []

    def try_it() -> None:
        free.append(patches._sharing.acquire(blocking=False))
        if free[0]:
            patches._sharing.release()

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()
    return free[0]


def assert_plain(model: Any, before: list[Any]) -> None:
    assert not differences(before, state_of(model))
    assert not patches._shared
    assert lock_is_free()


def test_an_interrupt_at_any_line_of_leaving_leaves_the_plain_model() -> None:
    model = make("llama")
    plain, line, ran = state_of(model), 1, True
    while ran:
        with lw.extend(model, "constant:tau=0.5"):
            before, interrupt = state_of(model), Interrupt(line)
            try:
                with lw.extend(model, "log"):
                    interrupt.__enter__()
            except KeyboardInterrupt:
                pass
            finally:
                interrupt.__exit__()
            ran = bool(interrupt.place)
            assert not differences(before, state_of(model))
        assert_plain(model, plain)
        line += 1 if line < 12 else 5
    assert line > 100


@pytest.mark.parametrize("method", ["yarn:factor=2+log", "rerope"])
def test_an_interrupt_at_any_line_of_entering_leaves_the_plain_model(method: str) -> None:
    model = make("llama")
    before, line, ran = state_of(model), 1, True
    while ran:
        extension, interrupt = lw.extend(model, method), Interrupt(line)
        try:
            with interrupt:
                extension.__enter__()
        except KeyboardInterrupt:
            assert_plain(model, before)
        else:
            extension.__exit__(None, None, None)
        ran, line = bool(interrupt.place), line + EVERY
    assert line > 500


def test_an_interrupt_in_a_forward_leaves_the_method_in_force_and_then_the_plain_model() -> None:
    model, ids = make("llama"), tokens(LONG)
    before = state_of(model)
    with lw.extend(model, "rerope+constant:tau=0.5"):
        expected = logits(model, ids)
        with Interrupt() as counted:
            logits(model, ids)
        for line in range(1, counted.lines, counted.lines // 15):
            with pytest.raises(KeyboardInterrupt), Interrupt(line):
                logits(model, ids)
            assert torch.equal(logits(model, ids), expected)
    assert_plain(model, before)
