"""The options of `lengthwise train` are the settings of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest

from lengthwise.training.settings import Settings, flag
from tests.conftest import Said


def test_every_setting_is_an_option_and_tells_its_default(
    lengthwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = lengthwise("train", "--help").out.splitlines()
    for field in fields(Settings)[1:]:
        (line,) = [line for line in lines if f"{flag(field.name)} " in line]
        if isinstance(field.default, int | str) and not isinstance(field.default, bool):
            assert f"by default {field.default}." in line
    assert any("--learning-rate" in line and "by default 2e-05." in line for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", 0), "--steps must be at least 1, not 0"),
        (("--steps", "few"), "Invalid value for '--steps'"),
        (("--dtype", "float16"), "--dtype must be 'float32' or 'bfloat16', not 'float16'"),
        (("--step", 5), "No such option: --step"),
    ],
)
def test_bad_options_are_refused_in_one_line(words: tuple[object, ...], message: str, lengthwise: Callable[..., Said]) -> None:
    said = lengthwise("train", "nowhere", "--out", "o", "--data", "a.txt", *words)
    assert (said.status, len(said.err)) == (2, 1)
    assert message in said.err[0]
