"""Every method of the catalogue, the next one included: finite at length, identity where it is promised, one line each."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import cast

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.catalogue import CATALOGUE
from lengthwise.methods.spec import methods_of, one_line
from lengthwise.methods.temperature import aligned
from lengthwise.slots import Slots, Temperature

TRAIN_LENGTH, LONGEST, HEADS = 64, 4096, 3
FACTS = {"train_length": TRAIN_LENGTH, "key_size": 16}
# What a method needs beyond the facts of a model; a method not named here is built from its bare name
ARGUMENTS = {
    "constant": "tau=0.8",
    "proposition1": "p_max=0.5,sigma_train=0.5",
    "proposition2": "sigma_train=1.5",
}
IDENTITY = ("aligned", "infoscale", "log", "proposition1", "proposition2", "yarn_factor")


@pytest.fixture(params=["model", "layer", "head"])
def alignment(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A calibrated table that reaches the longest input, one of every scope."""
    taus: dict[str, tuple[aligned.Table, aligned.Table]] = {
        "model": (0.9, 0.5),
        "layer": ([0.9, 0.8], [0.5, 0.4]),
        "head": ([[0.9] * HEADS, [0.8] * HEADS], [[0.5] * HEADS, [0.4] * HEADS]),
    }
    near, far = taus[request.param]
    table = (aligned.Calibrated(128, near, 0.1, 1), aligned.Calibrated(LONGEST, far, 0.1, 1))
    path = tmp_path / "alignment.json"
    aligned.Alignment("pmax", request.param, TRAIN_LENGTH, 0.1, table).save(path)
    return path


def build(name: str, alignment: Path) -> Temperature:
    arguments = f"path={alignment}" if name == "aligned" else ARGUMENTS.get(name, "")
    (method,) = methods_of(f"{name}:{arguments}", FACTS)
    assert Slots.of([method]).filled
    return cast(Temperature, method)


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("layer", [0, 1])
def test_every_method_is_finite_and_positive_at_every_length(name: str, layer: int, alignment: Path) -> None:
    visible = torch.arange(1, LONGEST + 1)[None, None]
    g = build(name, alignment).inverse_temperature(visible, layer)
    assert torch.broadcast_to(g, (1, HEADS, LONGEST)).isfinite().all()
    # Laws in proportion to ln n are 0 where a row sees one key, and there no temperature matters
    assert (g[..., 1:] > 0).all()
    assert (g[..., 0] >= 0).all()


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_method_takes_a_batch_and_gives_float32(name: str, alignment: Path) -> None:
    visible = torch.tensor([[[1, 64, 4096]], [[100, 7, 2]]])
    method = build(name, alignment)
    g = method.inverse_temperature(visible, 1)
    assert torch.broadcast_to(g, (2, HEADS, 3)).dtype == torch.float32
    for entry in range(2):
        torch.testing.assert_close(g[entry : entry + 1], method.inverse_temperature(visible[entry : entry + 1], 1))


@pytest.mark.parametrize("name", IDENTITY)
def test_a_method_that_promises_it_is_exactly_one_up_to_the_training_length(name: str, alignment: Path) -> None:
    method = build(name, alignment)
    assert method.inverse_temperature(torch.arange(1, TRAIN_LENGTH + 1)[None, None], 1).eq(1).all()
    assert (method.inverse_temperature(torch.tensor([[[LONGEST]]]), 1) > 1).all()


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_method_says_what_it_is_in_one_line(name: str) -> None:
    title, colon, what = one_line(name).partition(": ")
    assert colon
    assert title[0].isupper()
    assert what.endswith(".")


def test_every_method_file_is_in_the_catalogue_and_has_its_line() -> None:
    folder = Path(str(importlib.import_module("lengthwise.methods.temperature").__file__)).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert files == {CATALOGUE[name].__module__.rpartition(".")[2] for name in CATALOGUE}
    for name in CATALOGUE:
        first = str(sys.modules[CATALOGUE[name].__module__].__doc__).splitlines()[0]
        assert one_line(name) == first


@pytest.mark.parametrize(
    "spec",
    [
        "log:train_length=1",
        "log:train_length=0",
        "infoscale:train_length=1",
        "infoscale:key_size=0",
        "yarn_factor:train_length=0",
        "yarn_factor:factor=nan",
        "softmax_plus:base=1",
        "llama4:floor_length=0",
        "ssmax:s=-1",
        "constant:tau=inf",
        "proposition2:sigma_train=nan",
    ],
)
def test_an_argument_with_which_no_law_is_finite_and_positive_is_refused(spec: str) -> None:
    with pytest.raises(BadInput):
        methods_of(spec, FACTS)
