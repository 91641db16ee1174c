"""Every method of the catalogue, the next one included: finite at length, identity where it is promised, one line each."""

from __future__ import annotations

import importlib
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.base import leaves_alone
from lengthwise.methods.registry import METHODS, factory, source_of
from lengthwise.methods.slots import Slots
from lengthwise.methods.spec import methods_of
from lengthwise.methods.temperature import aligned
from tests.helpers.rows import Case, distances_of, keys_of

TRAIN_LENGTH, LONGEST, HEADS = 64, 4096, 4
FACTS = {"train_length": TRAIN_LENGTH, "key_size": 16, "rotary_size": 16, "layers": 2, "heads": 4, "key_heads": 2}
OWN = 10_000.0 ** (-torch.arange(8) / 8)
# What a method needs beyond the facts of a model; a method not named here is built from its bare name
ARGUMENTS = {
    "constant": "tau=0.8",
    "interpolation": "factor=8",
    "longrope": f"factors={Path(__file__).parents[1] / 'data/longrope.json'},factor=8",
    "ntk": "factor=8",
    "proposition1": "p_max=0.5,sigma_train=0.5",
    "proposition2": "sigma_train=1.5",
    "yarn": "factor=8",
}
# Ways to write a method that change what it leaves alone
VARIANTS = [
    "interpolation:factor=1",
    "ntk:factor=8,dynamic=true",
    "yarn:dynamic=true",
    "rerope:leak=4",
    "streaming_llm:reindex=false",
]
# For training alone: two files draw positions and fill no slot, the third is left out of a trained model
TRAINING = {"pose", "random_positions", "shifted_sparse"}


def names_with(*functions: str) -> list[str]:
    """Methods whose class has one of the functions; `aligned` is a way to load one."""
    classes = {name: getattr(factory(name), "__self__", factory(name)) for name in METHODS}
    return [name for name, made in classes.items() if any(hasattr(made, function) for function in functions)]


TEMPERATURES = names_with("inverse_temperature")
ADAPTIVE = names_with("adaptive_sharpness")
POSITIONS = names_with("frequencies", "distances", "distance_bias", "narrow")
SIMILARITIES = names_with("similarity")
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
    aligned.Alignment("pmax", request.param, TRAIN_LENGTH, 0.1, table, {"name": "any"}).save(path)
    return path


def build(name: str, alignment: Path | None = None) -> Any:
    arguments = f"path={alignment}" if name == "aligned" else ARGUMENTS.get(name, "")
    (method,) = methods_of(name if ":" in name else f"{name}:{arguments}", FACTS)
    assert Slots.of([method]).filled
    return method


def test_every_method_of_the_catalogue_is_tested_here() -> None:
    assert set(TEMPERATURES) | set(ADAPTIVE) | set(POSITIONS) | set(SIMILARITIES) == set(METHODS)


@pytest.mark.parametrize("name", TEMPERATURES)
@pytest.mark.parametrize("layer", [0, 1])
def test_every_temperature_is_finite_and_positive_at_every_length(name: str, layer: int, alignment: Path) -> None:
    visible = torch.arange(1, LONGEST + 1)[None, None]
    g = build(name, alignment).inverse_temperature(visible, layer)
    assert torch.broadcast_to(g, (1, HEADS, LONGEST)).isfinite().all()
    # Laws in proportion to ln n are 0 where a row sees one key, and there no temperature matters
    assert (g[..., 1:] > 0).all()
    assert (g[..., 0] >= 0).all()


@pytest.mark.parametrize("name", TEMPERATURES)
def test_every_temperature_takes_a_batch_and_gives_float32(name: str, alignment: Path) -> None:
    visible = torch.tensor([[[1, 64, 4096]], [[100, 7, 2]]])
    method = build(name, alignment)
    g = method.inverse_temperature(visible, 1)
    assert torch.broadcast_to(g, (2, HEADS, 3)).dtype == torch.float32
    for entry in range(2):
        torch.testing.assert_close(g[entry : entry + 1], method.inverse_temperature(visible[entry : entry + 1], 1))


@pytest.mark.parametrize("name", ADAPTIVE)
@pytest.mark.parametrize("layer", [0, 1])
def test_every_adaptive_temperature_is_finite_and_positive_at_every_entropy(name: str, layer: int) -> None:
    method = build(name)
    h = torch.linspace(0, math.log(LONGEST), 2 * HEADS * 500).view(2, HEADS, 500)
    g = method.adaptive_sharpness(h, layer)
    assert g.shape == h.shape
    assert g.dtype == torch.float32
    assert g.isfinite().all()
    assert (g > 0).all()
    spared = [length for length in range(1, TRAIN_LENGTH) if method.leaves_alone(length)]
    assert all(method.adaptive_sharpness(torch.linspace(0, math.log(length), 100), layer).eq(1).all() for length in spared)


@pytest.mark.parametrize("name", IDENTITY)
def test_a_method_that_promises_it_is_exactly_one_up_to_the_training_length(name: str, alignment: Path) -> None:
    method = build(name, alignment)
    assert method.inverse_temperature(torch.arange(1, TRAIN_LENGTH + 1)[None, None], 1).eq(1).all()
    assert (method.inverse_temperature(torch.tensor([[[LONGEST]]]), 1) > 1).all()


@pytest.mark.parametrize("name", names_with("frequencies"))
@pytest.mark.parametrize("length", [1, TRAIN_LENGTH, LONGEST])
def test_no_method_turns_a_pair_faster_than_the_model(name: str, length: int) -> None:
    frequencies = build(name).frequencies(OWN, length)
    assert frequencies.shape == OWN.shape
    assert frequencies.dtype == torch.float32
    assert (frequencies >= 0).all()
    assert (frequencies <= OWN).all()


def narrowed(method: Any, case: Case) -> Any:
    return method.narrow(case.visible) if hasattr(method, "narrow") else case.visible


def promises() -> list[tuple[str, int]]:
    """Methods, and lengths that they say they leave alone."""
    lengths = (1, 30, TRAIN_LENGTH, 2 * TRAIN_LENGTH)
    return [(name, length) for name in [*POSITIONS, *VARIANTS] for length in lengths if leaves_alone(build(name), length)]


@pytest.mark.parametrize(("name", "length"), promises())
@pytest.mark.parametrize("causal", [True, False])
def test_a_length_that_is_left_alone_keeps_the_models_own_equation(name: str, length: int, causal: bool) -> None:
    method, case = build(name), Case(((0,) * length,), causal, length)
    seen = narrowed(method, case)
    assert keys_of(seen, case) == [set(case.seen(0, place)) for place in range(length)]
    if hasattr(method, "frequencies"):
        assert torch.equal(method.frequencies(OWN, length), OWN)
    if hasattr(method, "distances"):
        own = [{j: place - j for j in case.seen(0, place)} for place in range(length)]
        assert distances_of(method.distances(seen, case.visible), case) == own
    assert not hasattr(method, "distance_bias")


@pytest.mark.parametrize("name", ["clex", "lm_infinite", "ntk:factor=8,dynamic=true", "window", "yarn:dynamic=true"])
def test_a_method_that_promises_it_leaves_the_training_length_alone_and_no_more(name: str) -> None:
    method = build(name)
    assert method.leaves_alone(TRAIN_LENGTH)
    assert not method.leaves_alone(TRAIN_LENGTH + 1)


@pytest.mark.parametrize("name", [*names_with("narrow", "distances"), *VARIANTS[3:]])
@pytest.mark.parametrize("causal", [True, False])
def test_no_row_sees_a_key_the_model_hides_or_loses_itself(name: str, causal: bool) -> None:
    length = 2 * TRAIN_LENGTH
    method, case = build(name), Case(((0,) * length,), causal, length)
    seen = narrowed(method, case)
    rows = keys_of(seen, case)
    if hasattr(method, "distances"):
        rows = [set(row) for row in distances_of(method.distances(seen, case.visible), case)]
    for place, keys in enumerate(rows):
        assert place in keys
        assert keys <= set(case.seen(0, place))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_is_in_one_line(name: str) -> None:
    title, colon, what = source_of(name).summary.partition(": ")
    assert colon
    assert title[0].isupper()
    assert what.endswith(".")


def test_every_method_file_is_in_the_catalogue_and_has_its_line() -> None:
    kinds = ("temperature", "positions", "similarity")
    folders = [importlib.import_module(f"lengthwise.methods.{kind}").__path__[0] for kind in kinds]
    files = {path.stem for folder in folders for path in Path(folder).glob("*.py")} - {"__init__"}
    assert files - TRAINING == {factory(name).__module__.rpartition(".")[2] for name in METHODS}
    for name in METHODS:
        first = str(sys.modules[factory(name).__module__].__doc__).splitlines()[0]
        assert source_of(name).summary == first


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
        "adaptive:a2=nan",
        "adaptive:threshold=-1",
        "constant:tau=inf",
        "proposition2:sigma_train=nan",
        "interpolation:factor=0.5",
        "ntk:factor=nan",
        "yarn:factor=0.9",
        "yarn:factor=2,dynamic=true",
        "self_extend:group=17,window=16",
        "self_extend:window=64",
        "dual_chunk:chunk=65",
        "dual_chunk:window=24",
        "string:shift=64",
        "clipped_rope:clip=-1",
        "longrope:factors=nowhere",
        "dpe:scales=4-x",
        "dpe:scales=4-0",
        "dpe:window=64",
        "ms_poe:min_ratio=0.9",
        "ms_poe:min_ratio=2",
        "ms_poe:skip=-1",
        "eabf:new_base=1",
        "clex:rotary_size=7",
        "rerope:window=65",
        "rerope:leak=0.5",
        "window:size=65",
        "window:size=0",
        "streaming_llm:window=61",
        "streaming_llm:sinks=-1",
        "lm_infinite:sinks=-1",
        "cosscale:scale=0",
    ],
)
def test_an_argument_that_makes_no_method_is_refused(spec: str) -> None:
    with pytest.raises(BadInput):
        methods_of(spec, FACTS)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "constant"])
def test_every_method_says_where_it_comes_from(name: str) -> None:
    source = source_of(name)
    assert source.papers
    for paper in source.papers:
        assert re.fullmatch(r"[\w. ]+ (19|20)\d\d( \([\w ]+\))?, (arXiv:\d{4}\.\d{5}|https://\S+)", paper), paper
    assert all(address.startswith("https://github.com/") for address in source.code)
    assert source.summary == str(sys.modules[factory(name).__module__].__doc__).splitlines()[0]


def test_the_lists_of_methods_and_tasks_need_no_torch() -> None:
    listing = (
        "import sys; from lengthwise.cli import run; assert run(['methods']) == run(['tasks']) == 0; "
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", listing], check=True, stdout=subprocess.DEVNULL)
