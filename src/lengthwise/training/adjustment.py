"""Which method is in force while a model is trained, and which of its weights move.

An adjustment is a method's spec (`none`, `clex`, `eabf`, `yarn:factor=4`, `interpolation:factor=2`), or

    longqlora[:factor=F] = interpolation:factor=F + shifted sparse attention + LoRA on 4-bit weights          Yang 2023

F is the length trained at in the model's own training lengths unless given. Shifted sparse attention, LoRA and 4-bit weights
are for training: the trained model has full attention and LoRA merged into its weights.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.errors import require
from lengthwise.methods.base import learns_alone
from lengthwise.methods.positions.clex import Clex
from lengthwise.methods.positions.shifted_sparse import ShiftedSparse
from lengthwise.methods.registry import factory
from lengthwise.methods.spec import ALIGNED, NONE, Term, methods_of, parse_spec
from lengthwise.methods.temperature.aligned import Alignment
from lengthwise.models.anatomy import Anatomy, unwrapped
from lengthwise.training.lora import can_quantise, with_lora
from lengthwise.training.settings import LONGQLORA, Settings
from lengthwise.training.stretched import StretchedClex

RANK = 64
# What a method learns is a part of the model while it is trained, so that the optimiser and all processes know of it
LEARNT = "lengthwise_adjustment"


@dataclass(frozen=True)
class Adjustment:
    """How a run changes its model, with all defaults filled in."""

    spec: str  # in force in training and afterwards
    lora_rank: int  # 0 trains all weights
    shifted_sparse: bool  # in training only
    quantised: bool


def adjustment_of(settings: Settings, own_length: int, train_length: int) -> Adjustment:
    """The adjustment that settings ask for, of a model whose own training length is `own_length`."""
    spec = settings.adjustment
    terms = parse_spec(spec).terms
    is_longqlora = LONGQLORA in parse_spec(spec).names[:1]
    if is_longqlora:
        options = ",".join(terms[0].options)
        require("," not in options and options[:7] in ("", "factor="), f"longqlora has no option {options!r}; it has factor")
        interpolation = f"interpolation:{options or f'factor={max(1.0, train_length / own_length):g}'}"
        spec = "+".join([interpolation, *(term.text for term in terms[1:])])
    rank = settings.lora_rank if settings.lora_rank is not None else RANK * is_longqlora
    shifted = settings.shifted_sparse if settings.shifted_sparse is not None else is_longqlora
    return Adjustment(spec, rank, shifted, _quantised(settings.quantise, is_longqlora, rank))


def _quantised(asked: bool | None, is_longqlora: bool, rank: int) -> bool:
    possible = can_quantise()
    if asked:
        require(rank > 0, "4-bit weights cannot be trained themselves; give a --lora-rank above 0")
        require(possible, "4-bit weights need the package bitsandbytes and a GPU; leave --quantise out")
    if asked is None and is_longqlora and not possible:
        warnings.warn("no bitsandbytes or no GPU here: longqlora trains LoRA on unquantised weights", stacklevel=3)
    return possible and (is_longqlora if asked is None else asked)


@dataclass(frozen=True)
class TrainingMethods:
    """The methods in force while a model is trained, and those among them that learn."""

    installed: list[object]
    learnt: nn.Module | None = None  # the method whose weights are trained, too
    learnt_name: str | None = None  # of the method that `learnt` is
    stretched: StretchedClex | None = None
    alignment: Alignment | None = None


def methods_for(adjustment: Adjustment, settings: Settings, anatomy: Anatomy, train_length: int) -> TrainingMethods:
    """The methods that an adjustment puts in force.

    CLEX learns at lengths drawn anew every step, see stretched.py; every other method is as it will be used.
    """
    methods = methods_of(adjustment.spec, anatomy.facts)
    alignments = [method for method in methods if isinstance(method, Alignment)]
    learnt = next((method for method in methods if isinstance(method, nn.Module)), None)
    needs_files = learnt is not None or len(alignments) > 0
    nameable = not (needs_files and any(sign in settings.out for sign in "+,"))
    require(nameable, f"a spec cannot name files in {settings.out}: it reads + and , as its own; give another --out")
    require(len(alignments) < 2, "training takes one alignment; leave the others out")
    learnt_name, stretched = learnt_method(adjustment.spec), None
    if isinstance(learnt, Clex):
        stretched = StretchedClex(learnt, settings.stretch, train_length, settings.seed)
        methods = [stretched if method is learnt else method for method in methods]
    installed = methods + [ShiftedSparse()] * adjustment.shifted_sparse
    return TrainingMethods(installed, learnt, learnt_name, stretched, next(iter(alignments), None))


def prepared(model: nn.Module, adjustment: Adjustment, methods: TrainingMethods, seed: int) -> Any:
    """The model ready to train: with LoRA, if asked for, and with the weights that the method learns."""
    if adjustment.lora_rank:
        model = with_lora(model, adjustment.lora_rank, seed)
    elif methods.learnt is not None and learns_alone(methods.learnt):
        model.requires_grad_(False)
    if methods.learnt is not None:
        unwrapped(model).add_module(LEARNT, methods.learnt)
    return model


def learnt_method(spec: str) -> str | None:
    """The name of the method in a spec that has weights to learn; None where none has."""
    learning = [name for name in parse_spec(spec).names if _has_weights(name)]
    require(len(learning) < 2, f"{' and '.join(learning)} both learn; train with one of them at a time")
    return next(iter(learning), None)


def _has_weights(name: str) -> bool:
    maker = factory(name)
    if not (isinstance(maker, type) and issubclass(maker, nn.Module)):
        return False
    reads = "weights" in inspect.signature(maker).parameters
    require(reads, f"{name} learns, and has no argument `weights`, the file to read again what it has learnt")
    return True


def spec_with(spec: str, learnt: Path | None = None, alignment: Path | None = None) -> str:
    """The spec that uses what was learnt, and the alignment that goes with the trained model."""

    def with_files(term: Term) -> str:
        if alignment is not None and term.name == ALIGNED:
            return f"@{alignment}"
        if learnt is not None and _has_weights(term.name):
            return term.with_option("weights", learnt).text
        return term.text

    return "+".join(map(with_files, parse_spec(spec).terms)) or NONE
