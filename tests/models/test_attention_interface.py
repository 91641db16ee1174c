"""What the attention function computes: against models changed by hand, against transformers, and its gradients."""

from __future__ import annotations

import copy
import threading
from functools import partial
from typing import Any

import pytest
import torch
import transformers
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaAttention

import lengthwise as lw
from lengthwise.methods.spec import methods_of
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.attention_interface import NAME, attention_forward, register
from lengthwise.models.patches import Patches
from tests.conftest import (
    DECODER_SIZES,
    ENCODERS,
    TRAIN_LENGTH,
    logits,
    make,
    tokens,
)
from tests.extended import LONG, alignment

TOLERANCE = 2e-5


@pytest.mark.parametrize("name", [*ENCODERS, "bert", "roberta"])
def test_a_temperature_divides_logit_and_bias_of_every_encoder_layer(name: str) -> None:
    """Against a model whose queries and bias tables were divided by hand."""
    model = make(name)
    by_hand = copy.deepcopy(model)
    stack = by_hand.get_encoder() if name in ENCODERS else by_hand.base_model
    for key, parameter in stack.named_parameters():
        if key.endswith((".q.weight", "relative_attention_bias.weight", "self.query.weight", "self.query.bias")):
            parameter.data /= 0.6
    ids = tokens(LONG)
    with lw.extend(model, alignment(model), train_length=TRAIN_LENGTH):
        assert relative_error(logits(model, ids), logits(by_hand, ids)) < 1e-5


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


def test_a_causal_row_takes_its_temperature_from_its_own_number_of_keys() -> None:
    model = make("llama")
    ids = tokens(LONG)
    plain = logits(model, ids)
    with lw.extend(model, "log"):
        extended = logits(model, ids)
    torch.testing.assert_close(extended[:, :TRAIN_LENGTH], plain[:, :TRAIN_LENGTH], atol=TOLERANCE, rtol=TOLERANCE)
    assert not torch.allclose(extended[:, TRAIN_LENGTH:], plain[:, TRAIN_LENGTH:])


def test_one_thread_may_begin_while_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What transformers knows of lengthwise is taken out at the end of the one: it must be there for the other."""
    begun, ended, registered = threading.Event(), threading.Event(), []

    def begin() -> None:
        patches = Patches(torch.nn.Module())
        register(patches)
        begun.set()
        ended.wait(5)
        registered.extend([NAME in ALL_ATTENTION_FUNCTIONS, NAME in ALL_MASK_ATTENTION_FUNCTIONS])
        patches.undo()

    other = threading.Thread(target=begin)

    class Slow(dict[str, Any]):
        def pop(self, *args: Any) -> Any:
            if other.ident is None:
                other.start()
                begun.wait(0.05)
            return super().pop(*args)

    known = type(ALL_ATTENTION_FUNCTIONS)
    monkeypatch.setattr(known, "_global_mapping", Slow(known._global_mapping))
    patches = Patches(torch.nn.Module())
    register(patches)
    patches.undo()
    ended.set()
    other.join()
    assert registered == [True, True]
    assert NAME not in ALL_ATTENTION_FUNCTIONS


@pytest.fixture
def states() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values of a layer of the tiny Llama."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, heads, LONG, 8, generator=generator) for heads in (4, 2, 2))  # type: ignore[return-value]


def test_what_a_model_leaves_out_is_what_transformers_takes_for_it(
    states: tuple[torch.Tensor, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask, the scale and the dropout of a family that hands on none of them."""
    model = make("llama").train()
    layer, (query, key, value) = model.model.layers[0].self_attn, states
    causal, whole = (
        torch.nn.functional.scaled_dot_product_attention(*states, is_causal=is_causal, enable_gqa=True).transpose(1, 2)
        for is_causal in (True, False)
    )
    with lw.extend(model, "none", train_length=2):
        close = partial(torch.testing.assert_close, atol=TOLERANCE, rtol=TOLERANCE)
        close(attention_forward(layer, query, key, value, None)[0], causal)
        close(attention_forward(layer, query, key, value, None, is_causal=False)[0], whole)
        monkeypatch.delattr(layer, "is_causal")
        close(attention_forward(layer, query, key, value, None)[0], whole)
        close(attention_forward(layer, query, key, value, None, is_causal=True)[0], causal)


def test_an_implementation_that_cannot_be_found_is_named() -> None:
    """A class in a file of the user's has no eager function beside it."""
    model = make("llama")
    model.set_attn_implementation("eager")
    for layer in model.model.layers:
        layer.self_attn.__class__ = type("OwnAttention", (LlamaAttention,), {"__module__": __name__})
    with (
        lw.extend(model, "log"),
        pytest.raises(lw.BadInput, match="OwnAttention's own attention implementation 'eager' cannot"),
    ):
        logits(model, tokens(TRAIN_LENGTH))


def test_what_the_equation_does_not_have_is_refused() -> None:
    gemma2 = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**DECODER_SIZES)).eval()
    with pytest.raises(lw.BadInput, match="softcap"), lw.extend(gemma2, "log", train_length=TRAIN_LENGTH):
        logits(gemma2, tokens(LONG))
    model = make("llama")
    with pytest.raises(lw.BadInput, match="row_statistics"), lw.extend(model, "log"):
        model(tokens(LONG), output_attentions=True)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("put_on", [lw.accelerate, partial(lw.extend, method="log")])
def test_a_trace_is_refused_that_would_keep_one_inputs_mask(put_on: Any) -> None:
    model, ids = make("t5 encoder"), tokens(LONG)
    with put_on(model), pytest.raises(lw.BadInput, match=r"use torch\.export"):
        torch.jit.trace(model, (ids, torch.ones_like(ids)), strict=False)


def test_packed_sequences_do_not_see_each_other() -> None:
    model = make("llama")
    first, second = tokens(40, seed=1), tokens(50, seed=2)
    packed = torch.cat([first, second], 1)
    positions = torch.cat([torch.arange(40), torch.arange(50)])[None]
    with lw.extend(model, "log"), torch.no_grad():
        together = model(input_ids=packed, position_ids=positions, use_cache=False).logits
        apart = torch.cat([logits(model, first), logits(model, second)], 1)
    torch.testing.assert_close(together, apart, atol=TOLERANCE, rtol=TOLERANCE)


CHECKPOINTED = {
    "a trained bias": ("llama", "t5_bias", LONG),
    "trained frequencies": ("llama", "clex", LONG),
    "distances": ("llama", "rerope", LONG),
    "a learned bias": ("t5", "log", LONG),
    "a learned bias of the old model": ("t5", "log", TRAIN_LENGTH),
}


# T5's own decoder loses gradients of its bias with the reentrant kind
@pytest.mark.parametrize(
    ("case", "reentrant"), [(c, r) for c in CHECKPOINTED for r in (False, True) if not (r and CHECKPOINTED[c][0] == "t5")]
)
def test_layers_computed_again_in_the_backward_pass_give_the_same_gradients(case: str, reentrant: bool) -> None:
    name, spec, length = CHECKPOINTED[case]
    # In float64, so that rounding hides nothing
    model, ids = make(name).double().train(), tokens(length)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(vars(module).get("dropout"), float):
            module.dropout = 0.0
    (method,) = methods_of(spec, anatomy_of(model, TRAIN_LENGTH).facts)
    trained = list(method.parameters()) if isinstance(method, torch.nn.Module) else []
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(torch.linspace(-0.1, 0.1, parameter.numel()).view_as(parameter))
    grads = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
        parameters = [*model.parameters(), *trained]
        for parameter in parameters:
            parameter.grad = None
        with lw.extend(model, method, train_length=TRAIN_LENGTH):
            model(input_ids=ids, labels=ids if name == "llama" else ids[:, :4], use_cache=False).loss.backward()
        grads.append([None if p.grad is None else p.grad.clone() for p in parameters])
    assert all(float(p.grad.norm()) > 0 for p in trained)
    for plain, again in zip(*grads, strict=True):
        assert (plain is None) == (again is None)
        if plain is not None and again is not None:
            torch.testing.assert_close(again, plain, atol=1e-7 * max(1.0, float(plain.abs().max())), rtol=1e-6)


def test_gradients_flow_as_in_transformers() -> None:
    model = make("t5")
    ids = tokens(LONG)
    grads = []
    for extended in (False, True):
        model.zero_grad()
        if extended:
            with lw.extend(model, "none", train_length=2):
                model(input_ids=ids, labels=ids[:, :4]).loss.backward()
        else:
            model(input_ids=ids, labels=ids[:, :4]).loss.backward()
        grads.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    for name, grad in grads[0].items():
        torch.testing.assert_close(grads[1][name], grad, atol=1e-4 * max(1.0, float(grad.abs().max())), rtol=1e-3)
