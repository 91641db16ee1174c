"""Methods on loaded models: every family, with padding, generation and restoration."""

from __future__ import annotations

import pytest
import torch

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods import registry
from lengthwise.methods.slots import claimed_slots
from lengthwise.models.snapshot import differences, state_of
from lengthwise.models.state import LAYER
from tests.conftest import (
    BIDIRECTIONAL,
    DECODERS,
    ENCODERS,
    FAMILIES,
    TRAIN_LENGTH,
    logits,
    make,
    shared,
    tokens,
)
from tests.extended import LONG
from tests.helpers.sweep import crossed

TOLERANCE = 2e-5


SPECS = {
    "constant": "constant:tau=0.7",
    "interpolation": "interpolation:factor=4",
    "ntk": "ntk:factor=4",
    "yarn": "yarn:factor=4",
    "ms_poe": "ms_poe:skip=0",
    "llama4": "llama4:floor_length=16",
    "proposition1": "proposition1:p_max=0.3,sigma_train=1",
    "proposition2": "proposition2:sigma_train=1",
}


# Those of a file are tested with their file
METHODS = [SPECS.get(name, name) for name in registry.METHODS if name not in ("aligned", "longrope")]


IDENTITY_WHEN_SHORT = ["none", "log", "infoscale", "yarn_factor", SPECS["proposition1"], SPECS["proposition2"], "window"]


# Of a method that is loaded from a file its class
CLASSES = {name: getattr(registry.factory(name), "__self__", registry.factory(name)) for name in registry.METHODS}
ROTATIONS = [name for name, made in CLASSES.items() if "rotation" in claimed_slots(made)]


ROTARY = [*DECODERS, "modernbert"]


def refusal(name: str, method: str) -> str | None:
    """Why a method cannot be used on a family, in words of its refusal."""
    method = method.partition(":")[0]
    if method == "cosscale":
        return "was not trained with it"
    if method in ROTATIONS and name not in ROTARY:
        return "changes rotary positions, and .* has none"
    if method in ("streaming_llm", "lm_infinite") and name == "mistral window":
        return "has a window of its own of 48 tokens, which has left them behind at 128"
    if method in ("alibi", "t5_bias") and name in ENCODERS:
        return "fills the bias slot, and so does the learned bias"
    return None


@pytest.mark.parametrize("name", FAMILIES)
def test_none_gives_what_the_model_gives_at_any_length(name: str) -> None:
    model = shared(name)
    ids = tokens(LONG, batch=2)
    expected = logits(model, ids)
    with lw.extend(model, "none", train_length=2):
        torch.testing.assert_close(logits(model, ids), expected, atol=TOLERANCE, rtol=TOLERANCE)


# Switch has no sdpa implementation of its own
OWN = [(name, own) for name in FAMILIES for own in ("eager", "sdpa") if (name, own) != ("switch", "sdpa")]


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.sweep)])
@pytest.mark.parametrize(("name", "own"), OWN)
def test_short_inputs_are_bit_for_bit_the_old_model(name: str, own: str, turn: int) -> None:
    """Every other method with padding, and of the two implementations each with those that the other has without."""
    model = make(name)
    model.set_attn_implementation(own)
    ids = tokens(TRAIN_LENGTH, batch=2)
    padded = torch.ones_like(ids)
    padded[0, -5:] = 0
    masks = [None, padded]
    expected = [logits(model, ids, mask) for mask in masks]
    for place, method in enumerate(IDENTITY_WHEN_SHORT):
        which = (place + turn + (own == "sdpa")) % 2
        with lw.extend(model, method, train_length=TRAIN_LENGTH):
            assert torch.equal(logits(model, ids, masks[which]), expected[which])


@pytest.mark.parametrize(("method", "name"), crossed([*METHODS], [*FAMILIES], every=6, whole={"t5", "llama"}))
def test_every_method_is_finite_at_four_times_the_length_or_refused(name: str, method: str) -> None:
    model = shared(name)
    ids = tokens(LONG)
    plain = logits(model, ids)
    if words := refusal(name, method):
        with pytest.raises(BadInput, match=words), lw.extend(model, method, train_length=TRAIN_LENGTH):
            logits(model, ids)
        return
    with lw.extend(model, method, train_length=TRAIN_LENGTH):
        extended = logits(model, ids)
    assert torch.isfinite(extended).all()
    # An untrained bias is zero, and the one pair that this GPT-NeoX rotates turns by 1 a token, neither stretched nor clipped
    same = method in ("t5_bias", "head_scale") or (method, name) in (("ntk:factor=4", "gpt_neox"), ("clipped_rope", "gpt_neox"))
    assert torch.allclose(extended, plain, atol=1e-4 if same else 1e-6) == same


@pytest.mark.parametrize(
    ("name", "side", "method"), crossed([*FAMILIES], ["left", "right"], ["log", "adaptive"], every=2, whole={"t5", "llama"})
)
def test_a_padded_batch_gives_what_single_inputs_give(name: str, side: str, method: str) -> None:
    if name in BIDIRECTIONAL and side == "left" and name != "modernbert":
        pytest.skip("absolute positions shift with left padding in the model itself")
    model = shared(name)
    lengths = [LONG, LONG - 37, TRAIN_LENGTH + 9]
    ids, mask = torch.zeros(3, LONG, dtype=torch.long), torch.zeros(3, LONG, dtype=torch.long)
    singles = []
    with lw.extend(model, method, train_length=TRAIN_LENGTH):
        for row, length in enumerate(lengths):
            one = tokens(length, seed=row)
            singles.append(logits(model, one)[0])
            where = slice(0, length) if side == "right" else slice(LONG - length, LONG)
            ids[row, where], mask[row, where] = one[0], 1
        inputs = {"input_ids": ids, "attention_mask": mask}
        if name in DECODERS:
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp_min(0)
        elif name in ENCODERS and model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = torch.full((3, 3), 5)
        with torch.no_grad():
            output = model(**inputs)
    together = output.logits if hasattr(output, "logits") else output.last_hidden_state
    for row, single in enumerate(singles):
        real = together[row] if together.shape[1] != LONG else together[row][mask[row].bool()]
        torch.testing.assert_close(real, single, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("name", "method"), crossed([*DECODERS], ["log", "adaptive+log"], every=2, whole={"llama"}))
def test_cached_generation_agrees_with_one_forward_over_everything(name: str, method: str) -> None:
    model = shared(name)
    ids = tokens(TRAIN_LENGTH - 4, batch=2)
    with lw.extend(model, method, train_length=TRAIN_LENGTH):
        options = {"max_new_tokens": 12, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
        out = model.generate(ids, eos_token_id=None, pad_token_id=0, **options)
        whole = logits(model, out.sequences)
    stepwise = torch.stack(out.logits, 1)
    torch.testing.assert_close(stepwise, whole[:, ids.shape[1] - 1 : -1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("padding", "method"),
    crossed(
        [0, 5],
        ["log", "rerope:window=16", "streaming_llm:window=20", "clex", "yarn:dynamic=true", "self_extend:window=9"],
        every=2,
    ),
)
def test_a_static_cache_generates_the_same_tokens(method: str, padding: int) -> None:
    model = shared("llama")
    ids = tokens(TRAIN_LENGTH + 10, batch=2)
    mask = torch.ones_like(ids)
    mask[0, :padding] = 0
    with lw.extend(model, method):
        options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "attention_mask": mask}
        plain = model.generate(ids, **options)
        static = model.generate(ids, **options, cache_implementation="static", disable_compile=True)
    assert torch.equal(plain, static)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_is_restored_bit_for_bit(name: str) -> None:
    model = make(name)
    ids = tokens(LONG)
    expected = logits(model, ids)  # first, because Switch's router writes to itself in every forward
    before = state_of(model)
    with lw.extend(model, "log", train_length=TRAIN_LENGTH):
        logits(model, ids)
    assert not differences(before, state_of(model))
    assert torch.equal(logits(model, ids), expected)


def test_an_extend_that_is_never_entered_says_so() -> None:
    model = make("t5")
    with pytest.warns(UserWarning, match="does nothing by itself") as said:
        lw.extend(model, "log")
    assert [str(one.message) for one in said] == ["extend(...) does nothing by itself: write `with lengthwise.extend(...):`"]
    assert not any(LAYER.on(module) for module in model.modules())


def test_an_extend_may_be_entered_again_and_within_itself() -> None:
    model, ids = make("t5"), tokens(LONG)
    half, whole = "constant:tau=0.5", "constant:tau=0.25"
    once, twice = [], []
    extension = lw.extend(model, half)
    for _ in range(2):
        with extension:
            once.append(logits(model, ids))
            with extension:
                twice.append(logits(model, ids))
    for found, method in ((once, half), (twice, whole)):
        with lw.extend(model, method):
            assert all(torch.allclose(one, logits(model, ids), atol=TOLERANCE) for one in found)
