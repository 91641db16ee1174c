"""What an adjustment stands for, and what of it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods.positions.shifted_sparse import ShiftedSparse
from lengthwise.models.anatomy import anatomy_of
from lengthwise.training.adjustment import Adjustment, adjustment_of, learnt_method, methods_for, prepared, spec_with
from lengthwise.training.directory import learnt_file
from lengthwise.training.settings import Settings
from lengthwise.training.stretched import StretchedClex
from tests.conftest import make, tokens


def settings(**options: Any) -> Settings:
    return Settings(**{"model": "m", "out": "o", "data": ("a.txt",), **options})


@pytest.mark.filterwarnings("ignore:no bitsandbytes or no GPU")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Adjustment("none", 0, False, False)),
        ({"adjustment": "yarn:factor=4", "lora_rank": 8}, Adjustment("yarn:factor=4", 8, False, False)),
        ({"adjustment": "eabf", "shifted_sparse": True}, Adjustment("eabf", 0, True, False)),
        ({"adjustment": "longqlora"}, Adjustment("interpolation:factor=1.5", 64, True, False)),
        ({"adjustment": "longqlora:factor=8"}, Adjustment("interpolation:factor=8", 64, True, False)),
        (
            {"adjustment": "longqlora", "lora_rank": 4, "shifted_sparse": False, "quantise": False},
            Adjustment("interpolation:factor=1.5", 4, False, False),
        ),
    ],
)
def test_what_an_adjustment_stands_for(options: dict[str, Any], expected: Adjustment) -> None:
    assert adjustment_of(settings(**options), own_length=32, train_length=48) == expected


def test_the_plain_model_is_no_part_of_an_adjustment() -> None:
    with pytest.raises(BadInput, match=r"'none\+log': none is the plain model"):
        settings(adjustment="none+log")


def test_a_shorter_length_than_the_models_own_is_not_squeezed() -> None:
    chosen = settings(adjustment="longqlora", quantise=False)
    assert adjustment_of(chosen, own_length=32, train_length=16).spec == "interpolation:factor=1"


def test_longqlora_says_when_it_is_not_quantised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.training.adjustment.can_quantise", lambda: False)
    with pytest.warns(UserWarning, match="longqlora trains LoRA on unquantised weights"):
        assert not adjustment_of(settings(adjustment="longqlora"), 32, 64).quantised
    with pytest.raises(BadInput, match="4-bit weights need the package bitsandbytes and a GPU"):
        adjustment_of(settings(adjustment="longqlora", quantise=True), 32, 64)
    monkeypatch.setattr("lengthwise.training.adjustment.can_quantise", lambda: True)
    assert adjustment_of(settings(adjustment="longqlora"), 32, 64).quantised
    assert not adjustment_of(settings(adjustment="yarn:factor=2", lora_rank=8), 32, 64).quantised
    with pytest.raises(BadInput, match="4-bit weights cannot be trained themselves"):
        adjustment_of(settings(quantise=True), 32, 64)


def test_bad_adjustments_are_refused() -> None:
    anatomy = anatomy_of(make("llama"))
    with pytest.raises(BadInput, match="longqlora has no option 'rank=4'; it has factor"):
        adjustment_of(settings(adjustment="longqlora:rank=4"), 32, 64)
    for out in ("runs/a+b", "runs/a,b"):
        with pytest.raises(BadInput, match=r"a spec cannot name files in runs/a.b"):
            methods_for(Adjustment("clex", 0, False, False), settings(adjustment="clex", out=out), anatomy, 32)


def test_the_spec_names_what_clex_learnt() -> None:
    learnt = Path("o/clex.safetensors")
    assert spec_with("clex", learnt) == "clex:weights=o/clex.safetensors"
    assert spec_with("clex:steps=4,weights=old.safetensors+log", learnt) == "clex:steps=4,weights=o/clex.safetensors+log"
    assert spec_with("t5_bias + nope", Path("o/t5_bias.safetensors")) == "t5_bias:weights=o/t5_bias.safetensors+nope"
    assert spec_with("@a.json+ntk", None, Path("o/alignment.json")) == "@o/alignment.json+ntk"
    assert spec_with("aligned:path=a.json", None, Path("o/alignment.json")) == "@o/alignment.json"
    assert learnt_method("yarn:factor=2+log") is None
    with pytest.raises(BadInput, match=r"^clex and t5_bias both learn; train with one of them at a time$"):
        learnt_method("clex+t5_bias")


def test_a_method_of_ones_own_may_learn(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    source = "from torch import nn\nclass {}(nn.Module):\n    def __init__(self{}):\n        super().__init__()\n"
    source += "    def narrow(self, whole):\n        return whole\n"
    own.write_text(source.format("Learns", ", weights: str | None = None") + source.format("Forgets", ""))
    assert learnt_method(f"{own}:Learns+log") == f"{own}:Learns"
    learnt = tmp_path / learnt_file(f"{own}:Learns")
    assert learnt.name == "mine.py.Learns.safetensors"
    assert spec_with(f"{own}:Learns+log", learnt) == f"{own}:Learns:weights={learnt}+log"
    with pytest.raises(BadInput, match=r"Forgets learns, and has no argument `weights`"):
        learnt_method(f"{own}:Forgets")


def test_clex_is_stretched_and_learns_inside_the_model() -> None:
    model = make("llama")
    adjustment = Adjustment("clex+log", 0, True, False)
    methods = methods_for(adjustment, settings(), anatomy_of(model), 32)
    assert [type(method) for method in methods.installed][::2] == [StretchedClex, ShiftedSparse]
    assert methods.learnt is not None
    model = prepared(model, adjustment, methods, seed=0).train()
    with lw.extend(model, methods.installed):
        model(tokens(32), labels=tokens(32)).loss.backward()
    moved = {name: float(p.grad.abs().sum()) for name, p in model.named_parameters() if "lengthwise" in name}
    # W_up hears of the loss through W_down, which starts at zero
    assert moved.pop("lengthwise_adjustment.down") > 0
    assert moved == {"lengthwise_adjustment.up": 0.0}
