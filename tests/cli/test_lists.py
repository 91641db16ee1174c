"""`lengthwise methods` and `lengthwise tasks`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lengthwise.methods.registry import METHODS
from lengthwise.tasks import GROUPS, TASKS
from tests.conftest import Said


@pytest.mark.parametrize(("command", "catalogue"), [("methods", METHODS), ("tasks", {**TASKS, **GROUPS})])
def test_lists_name_everything_in_a_line_each(command: str, catalogue: dict[str, Any], lengthwise: Callable[..., Said]) -> None:
    said = lengthwise(command)
    assert (said.status, said.err) == (0, [])
    assert [line.split()[0] for line in said.out.splitlines()] == list(catalogue)
    document = json.loads(lengthwise(command, "--json").out)
    assert [entry["name"] for entry in document] == list(catalogue)
    assert all(len(entry["what"]) > 20 for entry in document)
    assert not [entry for entry in document if "1 of 1 " in entry["what"]]
