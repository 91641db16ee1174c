"""What a method may leave unsaid has a default, and nobody but the contract's own files asks whether it was said."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import lengthwise
from lengthwise.errors import BadInput
from lengthwise.methods import base
from lengthwise.methods.slots import CLAIMS
from lengthwise.methods.temperature.aligned import Alignment, Calibrated

SOURCES = Path(lengthwise.__file__).parent
READERS = ("methods/base.py", "methods/dry_run.py", "methods/slots.py")
FUNCTIONS = {function for functions in CLAIMS.values() for function in functions}
OPTIONAL = {"name", "leaves_alone", "dynamic", "max_distance", "sinks_and_window", "fingerprint", "check_fits"}
OPTIONAL |= {"stock_rotation", "acts_on", "factor", "to_json", "learns_alone"}
METHODS = re.compile(r"\b(method|methods|rotation|similarity|bias|narrow\w*|segment\w*|law|laws|adaptive|visible|slots)\b")


class Silent:
    """A method of a third party that says nothing but what it is."""

    def frequencies(self, trained: torch.Tensor, length: int) -> torch.Tensor:
        return trained


class Outspoken(Silent):
    name = "outspoken"
    dynamic = True
    max_distance = 7
    sinks_and_window = base.SinksAndWindow(4, 60)
    fingerprint = {"family": "llama"}
    stock_rotation = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}

    def leaves_alone(self, length: int) -> bool:
        return length <= 64

    def acts_on(self, layer: int) -> bool:
        return layer > 1

    def check_fits(self, layers: int, heads: int) -> None:
        raise BadInput(f"not {layers} layers of {heads} heads")

    def to_json(self) -> dict[str, str]:
        return {"said": "this"}


def test_every_optional_member_has_a_default() -> None:
    method = Silent()
    assert base.method_name(method) == "Silent"
    assert not base.leaves_alone(method, 1)
    assert not base.follows_length(method)
    assert base.bias_radius(method, 1000) == 1000
    assert base.sinks_and_window(method) is None
    assert base.fingerprint_of(method) == {}
    assert base.stock_rotation(method) is None
    assert base.acts_on(method, 0)
    base.check_fits(method, 2, 4)
    assert base.file_contents_of([method]) is None


def test_every_optional_member_is_heard() -> None:
    method = Outspoken()
    assert base.method_name(method) == "outspoken"
    assert base.leaves_alone(method, 64)
    assert not base.leaves_alone(method, 65)
    assert base.follows_length(method)
    assert (base.bias_radius(method, 1000), base.bias_radius(method, 3)) == (7, 3)
    assert base.sinks_and_window(method) == base.SinksAndWindow(4, 60, rolls=True)
    assert base.fingerprint_of(method) == {"family": "llama"}
    assert base.stock_rotation(method) == {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}
    assert [base.acts_on(method, layer) for layer in range(3)] == [False, False, True]
    with pytest.raises(BadInput, match="not 2 layers of 4 heads"):
        base.check_fits(method, 2, 4)
    assert base.file_contents_of([Silent(), method]) == {"said": "this"}


def test_the_documentation_names_every_function_and_every_optional_member() -> None:
    described = {name.partition("(")[0] for name in re.findall(r"`([^`]+)`", str(base.__doc__))}
    assert described >= FUNCTIONS | OPTIONAL


def test_contents_of_several_files_are_a_list_and_weights_are_told_apart_by_a_digest() -> None:
    first, second = (nn.Linear(2, 2) for _ in range(2))
    alignment = Alignment("pmax", "model", 64, 0.1, (Calibrated(128, 0.8, 0.1, 1),), {"family": "t5"})
    contents = base.file_contents_of([alignment, first, Silent(), second])
    assert contents[0] == alignment.to_json()
    assert contents[1] != contents[2]
    second.load_state_dict(first.state_dict())
    assert base.file_contents_of([second]) == contents[1]


def asked_of_methods(source: str) -> list[str]:
    """Calls of getattr or hasattr that ask for a member of the contract, or ask something that is called like a method."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    asking = [call for call in calls if call.func.id in ("getattr", "hasattr")]  # type: ignore[attr-defined]
    members = FUNCTIONS | OPTIONAL
    return [
        ast.unparse(call)
        for call in asking
        if METHODS.search(ast.unparse(call.args[0]))
        or (isinstance(call.args[1], ast.Constant) and call.args[1].value in members)
    ]


def test_only_the_contracts_own_files_ask_what_a_method_has() -> None:
    others = [path for path in SOURCES.rglob("*.py") if path.relative_to(SOURCES).as_posix() not in READERS]
    asked = {str(path): asked_of_methods(path.read_text(encoding="utf-8")) for path in others}
    assert {path: calls for path, calls in asked.items() if calls} == {}


@pytest.mark.parametrize(
    "source",
    [
        'hasattr(slots.visible, "segments")',
        'getattr(method, "anything", None)',
        'getattr(one, "dynamic", False)',
        "def f(rotation):\n    return hasattr(rotation, key)",
    ],
)
def test_a_file_that_asks_would_be_found(source: str) -> None:
    assert len(asked_of_methods(source)) == 1
