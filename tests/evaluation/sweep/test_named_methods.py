"""How methods are named, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.evaluation.sweep.named_methods import NamedMethod, named_methods
from lengthwise.methods.temperature.aligned import Alignment, Calibrated
from lengthwise.methods.temperature.infoscale import InfoScale

FACTS = {"train_length": 64, "key_size": 8}
ALIGNMENT = Alignment("pmax", "model", 64, 0.5, (Calibrated(128, 0.8, 0.5, 3),), {"family": "t5"})


def test_specs_are_their_own_names_and_take_what_they_need_from_the_model() -> None:
    none, truncate, scale = named_methods(["none", "truncate", " infoscale "], FACTS)
    assert none == NamedMethod("none")
    assert truncate == NamedMethod("truncate", reads="end")
    assert scale == NamedMethod("infoscale", (InfoScale(64, 8),))
    assert named_methods("none", FACTS) == [none]


def test_an_alignment_is_called_by_what_it_aligns_and_carries_its_document(tmp_path: Path) -> None:
    ALIGNMENT.save(tmp_path / "a.json")
    spec = f"@{tmp_path / 'a.json'}"
    plain, named, file, joined, twice, other = named_methods(
        {
            "aligned(pmax, model)": ALIGNMENT,
            "mine": ALIGNMENT,
            spec: spec,
            "j": [spec, "infoscale"],
            "t": [spec, spec],
            "o": "log",
        },
        FACTS,
    )
    assert named_methods([ALIGNMENT], FACTS) == [plain]
    assert [plain.document, named.document, file.document, joined.document] == [ALIGNMENT.to_json()] * 4
    assert twice.document == [ALIGNMENT.to_json()] * 2
    assert other.document is None
    assert joined.installs == (ALIGNMENT, InfoScale(64, 8))


def test_where_an_object_stands_in_memory_is_no_part_of_its_spec() -> None:
    """A run that another process goes on with would take it for another method."""

    @dataclass(frozen=True)
    class Own:
        law: Callable[[torch.Tensor], torch.Tensor]

    (method,) = named_methods({"mine": Own(lambda n: n)}, FACTS)
    assert method.spec == ""


def test_what_a_method_has_learnt_is_part_of_its_document(tmp_path: Path) -> None:
    """The same name with other weights is another method, which a run directory refuses."""
    from lengthwise.methods.positions.clex import Clex

    method, path = Clex(64, 8), tmp_path / "clex.safetensors"
    documents = []
    for shift in (0.0, 1e-6, 1e-6):
        torch.nn.init.constant_(method.down, shift)
        method.save(path)
        documents.append(named_methods([f"clex:weights={path}"], {**FACTS, "rotary_size": 8})[0].document)
    assert documents[0] != documents[1] == documents[2]
    assert named_methods([method.bfloat16()], FACTS)[0].document is not None


def test_a_method_named_twice_runs_once_but_two_methods_of_one_name_are_refused() -> None:
    assert len(named_methods(["none", "none", ALIGNMENT, ALIGNMENT], FACTS)) == 2
    with pytest.raises(BadInput, match=r"two different methods are called 'aligned\(pmax, model\)'"):
        named_methods([ALIGNMENT, replace(ALIGNMENT, target=0.25)], FACTS)


def test_a_hedge_stands_before_what_it_hedges() -> None:
    hedged, listed, alone, plain = named_methods(
        {"a": "hedge + infoscale", "b": ["hedge", ALIGNMENT], "hedge": "hedge", "infoscale": "infoscale"}, FACTS
    )
    assert hedged == NamedMethod("a", (InfoScale(64, 8),), reads="both")
    assert listed == NamedMethod("b", (ALIGNMENT,), reads="both")
    assert alone == NamedMethod("hedge", reads="both")
    assert plain.reads == "whole"
    assert named_methods(["hedge+none", ["hedge", "none"]], FACTS) == [NamedMethod("hedge+none", reads="both")]
    assert named_methods({"other": hedged}, FACTS) == [replace(hedged, name="other")]


def test_hedge_alone_is_the_plain_models_under_one_name() -> None:
    same = ["hedge", "hedge+none", " hedge + none ", ["hedge"], ["hedge", "none"]]
    assert named_methods(same, FACTS) == [NamedMethod("hedge+none", reads="both")]
    assert named_methods([["hedge", "infoscale"]], FACTS)[0].name == "hedge+infoscale"


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (["infoscale+hedge"], r"'infoscale\+hedge': hedge comes first, before the methods it hedges; write hedge\+infoscale"),
        (["hedge+"], r"'hedge\+': no method stands after the \+; write hedge\+none, or hedge\+METHOD"),
        ([" hedge + "], r"no method stands after the \+"),
        (["hedge+truncate"], "truncate is a baseline of its own"),
        (["truncate+infoscale"], "'truncate\\+infoscale': truncate is a baseline of its own"),
        (["infoscale + truncate"], "truncate is a baseline of its own"),
        ([["infoscale", "truncate"]], "truncate is a baseline of its own"),
        (["none+infoscale"], "'none\\+infoscale': none is the plain model"),
        (["hedge+none+infoscale"], "'none\\+infoscale': none is the plain model"),
        ([["none", ALIGNMENT]], "none is the plain model and cannot be joined"),
        (["infoscal"], "no method 'infoscal' in 'infoscal'; did you mean 'infoscale'"),
        (["@nowhere.json"], "no alignment file nowhere.json"),
        ([], "give at least one method"),
    ],
)
def test_what_is_no_method_is_refused(methods: list[object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        named_methods(methods, FACTS)
