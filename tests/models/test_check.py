"""`methods --check`: what every method of the package passes, and what each check catches."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lengthwise.attention import Part, Visible, as_they_stand
from lengthwise.models.check import CHECKS, check_method, failures
from tests.conftest import Said
from tests.helpers.own_code import METHOD
from tests.helpers.sweep import crossed
from tests.models.test_extend import METHODS


@pytest.mark.parametrize("method", crossed(METHODS, every=18))
def test_every_method_of_the_package_passes(method: str) -> None:
    assert not failures(check_method(method))


@dataclass(frozen=True)
class Temperature:
    """A law of n, right in all respects: the culprits below change one of them."""

    train_length: int = 64

    def inverse_temperature(self, visible: Tensor, layer: int) -> Tensor:
        return visible.div(self.train_length).clamp_min(1)


class InfiniteWhenLong(Temperature):
    def inverse_temperature(self, visible: Tensor, layer: int) -> Tensor:
        return torch.where(visible > 100, torch.inf, 1.0)


class OfTheLongestRow(Temperature):
    def inverse_temperature(self, visible: Tensor, layer: int) -> Tensor:
        return super().inverse_temperature(visible.amax(-1, keepdim=True), layer)


class OfTheWholeBatch(Temperature):
    def inverse_temperature(self, visible: Tensor, layer: int) -> Tensor:
        return super().inverse_temperature(visible, layer) * (1 + visible.shape[0])


class Raises(Temperature):
    def inverse_temperature(self, visible: Tensor, layer: int) -> Tensor:
        raise ArithmeticError("at\nlength")


class SaysItLeavesAlone:
    """It does not."""

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        part = as_they_stand(seen)
        return [Part(part.visible, part.query, part.key * 2)]

    def leaves_alone(self, length: int) -> bool:
        return length <= 64


class LeavesOneTooManyAlone:
    """A window of 40 keys, which 41 tokens already outgrow."""

    def narrow(self, whole: Visible) -> Visible:
        return whole.around(-39, 40)

    def leaves_alone(self, length: int) -> bool:
        return length <= 41


class ForgetsInALongCache:
    """Right until a cache is three times as long as the training inputs."""

    def narrow(self, whole: Visible) -> Visible:
        return whole.around(-9, 1) if whole.queries == 1 and whole.keys > 192 else whole


@dataclass(frozen=True)
class DependsOnTheCacheLaterOn:
    """Leaves the first layers as they are; where it acts, distances depend on how many keys there are so far."""

    skip: int = 2

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        part = as_they_stand(seen)
        return [Part(part.visible, part.query * whole.keys, part.key * whole.keys)]

    def acts_on(self, layer: int) -> bool:
        return layer >= self.skip


@dataclass(frozen=True)
class Counts(Temperature):
    """Remembers how often it was called, and so is another method the second time."""

    calls: Any = None

    def inverse_temperature(self, visible: Tensor, layer: int) -> Tensor:
        self.calls.append(1)
        return super().inverse_temperature(visible, layer) * (1 + len(self.calls) / 100)


@pytest.mark.parametrize(
    ("method", "caught", "reason"),
    [
        (Temperature(), [], ""),
        (InfiniteWhenLong(), ["finite", "joined"], "256 tokens give NaN or infinity"),
        (OfTheLongestRow(), ["token by token"], "token by token it differs from one forward: logits differ by up to"),
        (ForgetsInALongCache(), ["token by token"], "token by token it differs from one forward: logits differ by up to"),
        (OfTheWholeBatch(), ["padded"], "padded on the right, 256 tokens of 256: logits differ by up to"),
        (Raises(), ["finite"], "ArithmeticError: at length"),
        (SaysItLeavesAlone(), ["identity"], "it leaves 32 tokens alone, but its functions do not"),
        (LeavesOneTooManyAlone(), ["identity"], "it leaves 41 tokens alone, but its functions do not"),
        (DependsOnTheCacheLaterOn(), ["token by token"], "token by token it differs from one forward: logits differ by up to"),
        (DependsOnTheCacheLaterOn(skip=99), ["finite"], "it acts on none of the first 64 layers"),
        (Counts(calls=[]), ["joined"], "after `log` it is not what it is before it"),
    ],
)
def test_what_is_wrong_with_a_method_is_found_by_its_check(method: Any, caught: list[str], reason: str) -> None:
    outcomes = check_method(method, ["llama"])
    failed = failures(outcomes)
    assert {check for check in caught for one in failed if check in one.check} == {*caught}
    if caught:
        assert any(one.reason.startswith(reason) for one in failed)
    else:
        assert [one.check for one in outcomes] == [*CHECKS]
        assert [one.check for one in outcomes if one.verdict == "-"] == ["options that are no numbers are refused"]


def test_a_method_that_every_model_refuses_fails() -> None:
    (refused,) = failures(check_method("yarn:factor=4", ["t5"]))
    assert refused.verdict == "refused"
    assert refused.reason.startswith("Yarn changes rotary positions, and T5Stack has none")
    assert not failures(check_method("yarn:factor=4", ["t5", "llama"]))


def test_a_table_is_printed_and_the_status_tells(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    own = tmp_path / "mine.py"
    own.write_text(METHOD.replace("        if not self.power > 0:\n", "        if self.power <= 0:\n"))
    said = lengthwise("methods", "--check", f"{own}:Sharper:power=2")
    assert (said.status, said.err) == (1, [])
    lines = said.out.splitlines()
    assert lines[0].split() == ["t5", "llama", "gpt_neox"]
    table = {line[:42].strip(): line[42:].split() for line in lines[1 : 1 + len(CHECKS)]}
    assert table["finite at four times the training length"] == ["pass"] * 3
    assert table["token by token equals one forward"] == ["-", "pass", "pass"]
    assert table["options that are no numbers are refused"] == ["FAIL"] * 3
    assert lines[-1] == f"{own}:Sharper:power=2 fails"
    assert lines[-2].startswith("gpt_neox, options that are no numbers are refused: power=nan is accepted")
    own.write_text(METHOD)
    said = lengthwise("methods", "--check", f"{own}:Sharper", "--json")
    document = json.loads(said.out)
    assert (said.status, document["passes"], len(document["outcomes"])) == (0, True, 3 * len(CHECKS))


def test_what_is_no_method_is_refused(lengthwise: Callable[..., Said]) -> None:
    said = lengthwise("methods", "--check", "yarm")
    assert (said.status, said.err) == (2, ["lengthwise: no method 'yarm' in 'yarm'; did you mean 'yarn'?"])


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("yarn:factor=0.5", "yarn needs factor >= 1, not 0.5: inputs get that many times longer"),
        ("self_extend:group=9,window=8", "a group of 9 is larger than the window of 8: the first group would begin inside it"),
        ("{own}:Raises", "{own}:Raises: narrow does not work: mine.py, line 3, in narrow: KeyError: 'x'"),
    ],
)
def test_what_every_model_refuses_for_the_same_reason_is_bad_input(
    spec: str, line: str, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    own = tmp_path / "mine.py"
    own.write_text("class Raises:\n    def narrow(self, whole):\n        raise KeyError('x')\n")
    said = lengthwise("methods", "--check", spec.format(own=own))
    assert (said.status, said.out, said.err) == (2, "", [f"lengthwise: {line.format(own=own)}"])
