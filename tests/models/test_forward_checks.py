"""A result that did not come from every extended layer, on the right model, in one thread, is withheld."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods.temperature.log import Log
from lengthwise.models.snapshot import differences, state_of
from tests.conftest import (
    TRAIN_LENGTH,
    UNREACHABLE,
    logits,
    make,
    tokens,
)
from tests.extended import LONG

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy of a stack": lambda model: copy.copy(model.model),
    "pickle": pickle.dumps,
    "torch.save": lambda model: torch.save(model, io.BytesIO()),
    "deepcopy of a layer": lambda model: copy.deepcopy(model.model.layers[0]),
}


@pytest.mark.parametrize("how", COPIES)
def test_an_extended_model_is_neither_copied_nor_pickled(how: str) -> None:
    model, ids = make("llama"), tokens(LONG)
    with lw.extend(model, "rerope+constant:tau=0.5"):
        inside = logits(model, ids)
        with pytest.raises(BadInput, match=r"^this model is extended, .* neither copied nor pickled .*; leave `extend` first"):
            COPIES[how](model)
        assert torch.equal(logits(model, ids), inside)
    COPIES[how](model)


def test_save_pretrained_writes_the_plain_model_inside_too(tmp_path: Path) -> None:
    model = make("llama")
    model.save_pretrained(tmp_path / "outside")
    with lw.extend(model, "yarn:factor=2+constant:tau=0.5"):
        model.save_pretrained(tmp_path / "inside")
    for file in (tmp_path / "outside").iterdir():
        assert file.read_bytes() == (tmp_path / "inside" / file.name).read_bytes()


@pytest.mark.parametrize("name", UNREACHABLE)
def test_families_that_bypass_the_interface_are_refused_before_any_result(name: str) -> None:
    model = make(name)
    before = state_of(model)
    with pytest.raises(lw.BadInput, match="attention"), lw.extend(model, "log", train_length=TRAIN_LENGTH):
        logits(model, tokens(LONG))
    assert not differences(before, state_of(model))


def test_a_layer_that_is_skipped_withholds_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("t5")
    attention = model.encoder.block[1].layer[0].SelfAttention
    own = attention.forward

    def sneaky(*args: Any, **kwargs: Any) -> Any:
        attention.config._attn_implementation_internal = "eager"
        try:
            return own(*args, **{**kwargs, "mask": None, "position_bias": None})
        finally:
            attention.config._attn_implementation_internal = "lengthwise"

    monkeypatch.setattr(attention, "forward", sneaky)
    with pytest.raises(lw.BadInput, match="1 of 3 attention layers of T5Stack were not reached"), lw.extend(model, "log"):
        logits(model, tokens(LONG))


def test_a_second_thread_in_the_middle_of_a_forward_is_refused_by_name() -> None:
    model, ids, said = make("t5"), tokens(LONG), []

    def second(*_: Any) -> None:
        try:
            model.encoder(ids)
        except BadInput as error:
            said.append(str(error))

    def other(*_: Any) -> None:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()

    with lw.extend(model, "log"):
        hook = model.encoder.block[1].register_forward_pre_hook(other)
        expected = model.encoder(ids).last_hidden_state
        hook.remove()
        assert len(said) == 1
        assert said[0].startswith("two threads run this extended model at once; hold a lock")
        # One after the other they may, also after a forward that failed
        with pytest.raises(IndexError):
            model.encoder(torch.tensor([[10**6]]))
        other()
        assert len(said) == 1
        assert torch.equal(model.encoder(ids).last_hidden_state, expected)


def test_other_threads_are_served_after_an_interrupt_in_a_forward() -> None:
    model, ids, outputs = make("t5"), tokens(LONG), []

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with lw.extend(model, "log"):
        expected = model.encoder(ids).last_hidden_state
        hook = model.encoder.block[1].register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.encoder(ids)
        hook.remove()
        thread = threading.Thread(target=lambda: outputs.append(model.encoder(ids).last_hidden_state))
        thread.start()
        thread.join()
        assert torch.equal(outputs[0], expected)


@pytest.mark.parametrize(
    ("method", "told"), [(Log, r"Log is a class of methods; give one of them, Log\(...\)"), (torch.tensor(3), "not a tensor")]
)
def test_what_is_no_method_is_refused(method: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told), lw.extend(make("llama"), method):
        pass


def test_another_attention_set_meanwhile_is_refused_by_name() -> None:
    model = make("llama")
    with lw.extend(model, "log"):
        model.set_attn_implementation("eager")
        with pytest.raises(BadInput, match="eager attention was set while this model is extended; leave `extend` first"):
            model(tokens(8))
    t5 = make("t5")
    with lw.accelerate(t5):
        t5.encoder.set_attn_implementation("eager")
        with pytest.raises(BadInput, match="eager attention was set while this model is accelerated; `restore` it first"):
            t5.encoder(tokens(8))
