"""What commands share."""

from __future__ import annotations

import json

import pytest

from lengthwise.cli.options import print_json


def test_json_is_one_document_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"tau": [0.5, None]})
    assert json.loads(capsys.readouterr().out) == {"tau": [0.5, None]}
