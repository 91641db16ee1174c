"""What commands share."""

from __future__ import annotations

import json
import math

import pytest

from lengthwise.cli.options import print_json


def test_json_is_one_document_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"tau": [0.5, None]})
    assert json.loads(capsys.readouterr().out) == {"tau": [0.5, None]}


def test_numbers_that_json_has_not_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"loss": math.nan, "all": [{"of": (math.inf, 1)}]})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"loss": None, "all": [{"of": [None, 1]}]}
