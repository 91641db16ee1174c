"""Names that do not exist are refused before a model is loaded, in every command."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Said

EVALUATE = "evaluate {m} --length 300 --out {t}/run "
CALIBRATE = "calibrate {m} --length 64 --out {t}/a.json "
MISSPELT: dict[str, str] = {
    EVALUATE + "--task passky": "no task 'passky'; did you mean 'passkey'?",
    EVALUATE + "--task passkey --method yarm": "no method 'yarm' in 'yarm'; did you mean 'yarn'?",
    EVALUATE + "--task passkey --method hedge+yarn:facto=2": "method 'yarn' has no option 'facto=2'; did you mean 'factor'?",
    "reach {m} --task passky": "no task 'passky'; did you mean 'passkey'?",
    "reach {m} --method yarm": "no method 'yarm' in 'yarm'; did you mean 'yarn'?",
    CALIBRATE + "--scope heads": "not 'heads'; did you mean 'head'?",
    CALIBRATE + "--statistic p_max": "not 'p_max'; did you mean 'pmax'?",
    CALIBRATE + "--search solved": "not 'solved'; did you mean 'solve'?",
    CALIBRATE + "--task passky": "no task 'passky'; did you mean 'passkey'?",
    CALIBRATE + "--method yarm": "no method 'yarm' in 'yarm'; did you mean 'yarn'?",
    CALIBRATE + "--method truncate": "truncate and hedge are for evaluate and reach",
    "analyse {m} --length 64 --out {t}/run --task passky": "no task 'passky'; did you mean 'passkey'?",
    "misalignment {m} --method yarm": "no method 'yarm' in 'yarm'; did you mean 'yarn'?",
    "misalignment {m} --method yarn:factor=two": "method 'yarn': factor=two is not a number",
    "train {m} --data {t}/x.txt --out {t}/run --adjustment clexx": "no method 'clexx' in 'clexx'; did you mean 'clex'?",
    "train {m} --data {t}/x.txt --out {t}/run --adjustment longqlora+yarm": "no method 'yarm' in 'longqlora+yarm'",
}


@pytest.mark.parametrize("command", MISSPELT)
def test_a_misspelt_name_is_refused_before_a_model_is_loaded(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    def loaded(*_: Any, **__: Any) -> Any:
        raise AssertionError("a model was loaded")

    # Both are imported before one is changed, or the second would keep what it finds in the first
    for module in [importlib.import_module(f"lengthwise.{name}") for name in ("models.load", "training.train")]:
        monkeypatch.setattr(module, "load", loaded)
    (tmp_path / "x.txt").write_text("some text")
    said = lengthwise(*command.format(m="embedded", t=tmp_path).split())
    assert (said.status, said.out, len(said.err)) == (2, "", 1)
    assert MISSPELT[command] in said.err[0]
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]


@pytest.mark.parametrize(
    "command",
    [
        "analyse {m} --length 64 --out {t}/run",
        "misalignment {m}",
        CALIBRATE + "--statistic answers --task ruler",
        CALIBRATE + "--search dpe --task ruler",
    ],
)
@pytest.mark.parametrize("option", ["--device toaster", "--dtype float12"])
def test_a_misspelt_device_or_data_type_is_refused_before_weights_are_read(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    def read(*_: Any, **__: Any) -> Any:
        raise AssertionError("a config was read")

    monkeypatch.setattr(importlib.import_module("lengthwise.models.load"), "_config", read)
    said = lengthwise(*command.format(m="embedded", t=tmp_path).split(), *option.split())
    assert (said.status, said.out, len(said.err)) == (2, "", 1)
    assert ("float12" if "dtype" in option else "toaster") in said.err[0]
