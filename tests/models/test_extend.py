"""Methods on loaded models: every family, with padding, generation and restoration."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods import registry
from lengthwise.methods.positions.t5_bias import T5Bias
from lengthwise.methods.spec import methods_of
from lengthwise.models import masks
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.attention_interface import NAME, registered
from lengthwise.models.patches import suspended
from lengthwise.models.rotary import Rotary, no_rotation
from lengthwise.models.state import LAYER
from tests.conftest import (
    BIDIRECTIONAL,
    DECODER_SIZES,
    DECODERS,
    ENCODERS,
    FAMILIES,
    NEOX_SIZES,
    T5_SIZES,
    TRAIN_LENGTH,
    UNREACHABLE,
    logits,
    make,
    tokens,
)
from tests.helpers.sweep import crossed

LONG = 4 * TRAIN_LENGTH
TOLERANCE = 2e-5
SPECS = {
    "constant": "constant:tau=0.7",
    "interpolation": "interpolation:factor=4",
    "ntk": "ntk:factor=4",
    "yarn": "yarn:factor=4",
    "llama4": "llama4:floor_length=16",
    "proposition1": "proposition1:p_max=0.3,sigma_train=1",
    "proposition2": "proposition2:sigma_train=1",
}
METHODS = [SPECS.get(name, name) for name in registry.METHODS if name != "aligned"]
IDENTITY_WHEN_SHORT = ["none", "log", "infoscale", "yarn_factor", SPECS["proposition1"], SPECS["proposition2"], "window"]
ROTATIONS = ["clex", "eabf", "interpolation", "lm_infinite", "nope", "ntk", "rerope", "streaming_llm", "yarn"]
# Gemma 3 and ModernBERT have other frequencies for local and for global layers
ROTARY = [name for name in DECODERS if name != "gemma3"]


def refusal(name: str, method: str) -> str | None:
    """Why a method cannot be used on a family, in words of its refusal."""
    method = method.partition(":")[0]
    if method == "cosscale":
        return "was not trained with it"
    if method in ROTATIONS and name in ("gemma3", "modernbert"):
        return "frequencies of its own for each type of layer"
    if method in ROTATIONS and name not in ROTARY:
        return "changes rotary positions, and .* has none"
    if method in ("streaming_llm", "lm_infinite") and name == "mistral window":
        return "has a window of its own of 48 tokens, which has left them behind at 128"
    if method in ("alibi", "t5_bias") and name in ENCODERS:
        return "fills the bias slot, and so does the learned bias"
    return None


def alignment(model: Any, tau: Any = 0.6, scope: str = "model") -> lw.Alignment:
    from lengthwise.methods.temperature.aligned import Calibrated

    return lw.Alignment("pmax", scope, TRAIN_LENGTH, 0.5, (Calibrated(LONG, tau, 0.5, 3),))


@pytest.mark.parametrize("name", FAMILIES)
def test_none_gives_what_the_model_gives_at_any_length(name: str) -> None:
    model = make(name)
    ids = tokens(LONG, batch=2)
    expected = logits(model, ids)
    with lw.extend(model, "none", train_length=2):
        torch.testing.assert_close(logits(model, ids), expected, atol=TOLERANCE, rtol=TOLERANCE)


# Switch has no sdpa implementation of its own
@pytest.mark.parametrize(("name", "own"), [(n, i) for n in FAMILIES for i in ("eager", "sdpa") if (n, i) != ("switch", "sdpa")])
def test_short_inputs_are_bit_for_bit_the_old_model(name: str, own: str) -> None:
    model = make(name)
    model.set_attn_implementation(own)
    ids = tokens(TRAIN_LENGTH, batch=2)
    mask = torch.ones_like(ids)
    mask[0, -5:] = 0
    for attention_mask in (None, mask):
        expected = logits(model, ids, attention_mask)
        for method in IDENTITY_WHEN_SHORT:
            with lw.extend(model, method, train_length=TRAIN_LENGTH):
                assert torch.equal(logits(model, ids, attention_mask), expected)


@pytest.mark.parametrize(("method", "name"), crossed([*METHODS], [*FAMILIES], every=4, whole={"t5", "llama"}))
def test_every_method_is_finite_at_four_times_the_length_or_refused(name: str, method: str) -> None:
    model = make(name)
    ids = tokens(LONG)
    plain = logits(model, ids)
    if words := refusal(name, method):
        with pytest.raises(BadInput, match=words), lw.extend(model, method, train_length=TRAIN_LENGTH):
            logits(model, ids)
        return
    with lw.extend(model, method, train_length=TRAIN_LENGTH):
        extended = logits(model, ids)
    assert torch.isfinite(extended).all()
    # An untrained bias is zero, and the one pair that this GPT-NeoX rotates turns by 1 a token whatever the base
    same = method == "t5_bias" or (method, name) == ("ntk:factor=4", "gpt_neox")
    assert torch.allclose(extended, plain, atol=1e-4 if same else 1e-6) == same


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


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("method", ["log", "adaptive"])
def test_a_padded_batch_gives_what_single_inputs_give(name: str, side: str, method: str) -> None:
    if name in BIDIRECTIONAL and side == "left" and name != "modernbert":
        pytest.skip("absolute positions shift with left padding in the model itself")
    model = make(name)
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


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("method", ["log", "adaptive+log"])
def test_cached_generation_agrees_with_one_forward_over_everything(name: str, method: str) -> None:
    model = make(name)
    ids = tokens(TRAIN_LENGTH - 4, batch=2)
    with lw.extend(model, method, train_length=TRAIN_LENGTH):
        options = {"max_new_tokens": 24, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
        out = model.generate(ids, eos_token_id=None, pad_token_id=0, **options)
        whole = logits(model, out.sequences)
    stepwise = torch.stack(out.logits, 1)
    torch.testing.assert_close(stepwise, whole[:, ids.shape[1] - 1 : -1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize("method", ["log", "rerope:window=16", "streaming_llm:window=20", "clex", "ntk:factor=2,dynamic=true"])
def test_a_static_cache_generates_the_same_tokens(method: str, padding: int) -> None:
    model = make("llama")
    ids = tokens(TRAIN_LENGTH + 10, batch=2)
    mask = torch.ones_like(ids)
    mask[0, :padding] = 0
    with lw.extend(model, method):
        options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "attention_mask": mask}
        plain = model.generate(ids, **options)
        static = model.generate(ids, **options, cache_implementation="static", disable_compile=True)
    assert torch.equal(plain, static)


def test_t5_generates_under_a_temperature_and_only_the_encoder_changes() -> None:
    model = make("t5")
    ids = tokens(LONG)
    decoder_config = model.decoder.config._attn_implementation
    with lw.extend(model, "log"):
        assert model.decoder.config._attn_implementation == decoder_config
        assert model.encoder.config._attn_implementation == "lengthwise"
        assert model.generate(ids, max_new_tokens=4).shape[1] <= 5


def test_a_causal_row_takes_its_temperature_from_its_own_number_of_keys() -> None:
    model = make("llama")
    ids = tokens(LONG)
    plain = logits(model, ids)
    with lw.extend(model, "log"):
        extended = logits(model, ids)
    torch.testing.assert_close(extended[:, :TRAIN_LENGTH], plain[:, :TRAIN_LENGTH], atol=TOLERANCE, rtol=TOLERANCE)
    assert not torch.allclose(extended[:, TRAIN_LENGTH:], plain[:, TRAIN_LENGTH:])


def snapshot(model: Any) -> list[Any]:
    """Everything that installing touches, by identity where it is an object."""
    rows: list[Any] = []
    for name, module in model.named_modules():
        rows.append((name, {k: id(v) for k, v in vars(module).items() if not k.startswith("_forward")}))
        rows.append((name, list(module._forward_hooks), list(module._forward_pre_hooks)))
        if hasattr(module, "config"):
            rows.append((name, copy.deepcopy(vars(module.config))))
    rows.append({k: v.clone() for k, v in model.state_dict().items()})
    rows.append((list(ALL_ATTENTION_FUNCTIONS), list(ALL_MASK_ATTENTION_FUNCTIONS)))
    return rows


def assert_same(before: list[Any], after: list[Any]) -> None:
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        if isinstance(one, dict):
            assert all(torch.equal(one[key], other[key]) for key in one)
        else:
            assert one == other


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_is_restored_bit_for_bit(name: str) -> None:
    model = make(name)
    ids = tokens(LONG)
    expected = logits(model, ids)  # first, because Switch's router writes to itself in every forward
    before = snapshot(model)
    with lw.extend(model, "log", train_length=TRAIN_LENGTH):
        logits(model, ids)
    assert_same(before, snapshot(model))
    assert torch.equal(logits(model, ids), expected)


def test_a_model_is_restored_after_an_exception() -> None:
    model = make("t5")
    before = snapshot(model)
    with pytest.raises(IndexError), lw.extend(model, "log"):
        logits(model, torch.full((1, LONG), 10**6))
    assert_same(before, snapshot(model))


def test_nesting_adds_methods_and_unwinds_in_order() -> None:
    model = make("t5")
    ids = tokens(LONG)
    with lw.extend(model, "constant:tau=0.8+log"):
        expected = logits(model, ids)
    with lw.extend(model, "log"):
        outer = logits(model, ids)
        middle = snapshot(model)
        with lw.extend(model, "constant:tau=0.8"):
            torch.testing.assert_close(logits(model, ids), expected, atol=1e-6, rtol=1e-6)
        assert_same(middle, snapshot(model))
        assert torch.equal(logits(model, ids), outer)


def test_extensions_left_in_the_wrong_order_are_both_undone() -> None:
    model, ids = make("llama"), tokens(LONG)
    before, plain = snapshot(model), logits(model, ids)
    outer, inner = lw.extend(model, "streaming_llm"), lw.extend(model, "constant:tau=0.5")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(BadInput, match="the outer `extend` was left first"):
        outer.__exit__(None, None, None)
    assert torch.equal(logits(model, ids), plain)
    inner.__exit__(None, None, None)
    assert_same(before, snapshot(model))
    assert torch.equal(logits(model, ids), plain)


def test_one_thread_may_begin_while_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What transformers knows of lengthwise is taken out at the end of the one: it must be there for the other."""
    begun, ended, found = threading.Event(), threading.Event(), []

    def begin() -> None:
        with registered():
            begun.set()
            ended.wait(5)
            found.extend([NAME in ALL_ATTENTION_FUNCTIONS, NAME in ALL_MASK_ATTENTION_FUNCTIONS])

    other = threading.Thread(target=begin)

    class Slow(dict[str, Any]):
        def pop(self, *args: Any) -> Any:
            if other.ident is None:
                other.start()
                begun.wait(0.05)
            return super().pop(*args)

    known = type(ALL_ATTENTION_FUNCTIONS)
    monkeypatch.setattr(known, "_global_mapping", Slow(known._global_mapping))
    with registered():
        pass
    ended.set()
    other.join()
    assert found == [True, True]


def test_a_copy_of_an_extended_model_is_refused_and_the_original_goes_on() -> None:
    model, ids = make("llama"), tokens(LONG)
    plain = logits(model, ids)
    with lw.extend(model, "rerope+constant:tau=0.5"):
        inside, copied = logits(model, ids), copy.deepcopy(model)
        with pytest.raises(BadInput, match="a copy made while its model was extended"):
            logits(copied, ids)
        assert torch.equal(logits(model, ids), inside)
    for method in ("none", "log"):
        with pytest.raises(BadInput, match="a copy made while its model was extended"), lw.extend(copied, method):
            logits(copied, ids)
    with pytest.raises(BadInput, match="a copy made while its model was extended"):
        copied.generate(ids, max_new_tokens=1)
    assert torch.equal(logits(model, ids), plain)


def test_frequencies_that_grew_with_the_input_shrink_again() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER_SIZES, rope_parameters=rope)).eval()
    longer, ids = tokens(LONG), tokens(TRAIN_LENGTH + 20)
    plain = logits(copy.deepcopy(model), ids)
    lw.row_statistics(model, longer)
    assert torch.equal(logits(model, ids), plain)


TABLES = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": TRAIN_LENGTH, "bos_token_id": 1, "eos_token_id": 2},
    "gpt_bigcode": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": TRAIN_LENGTH, "bos_token_id": 1, "eos_token_id": 2},
    "opt": {**NEOX_SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "roberta": {**NEOX_SIZES, "max_position_embeddings": TRAIN_LENGTH + 1},
}


@pytest.mark.parametrize("name", TABLES)
def test_inputs_longer_than_a_table_of_positions_are_refused(name: str) -> None:
    config = transformers.AutoConfig.for_model(name, **{"vocab_size": 384, **TABLES[name]})
    make_it = transformers.AutoModelForMaskedLM if name == "roberta" else transformers.AutoModelForCausalLM
    model, ids = make_it.from_config(config).eval(), tokens(TRAIN_LENGTH + 1)
    plain = logits(model, ids[:, 1:])
    with lw.extend(model, "log", train_length=TRAIN_LENGTH):
        assert torch.equal(logits(model, ids[:, 1:]), plain)
        with pytest.raises(BadInput, match="a table of 32 absolute positions and was given 33 tokens"):
            logits(model, ids)
        if name != "roberta":
            with pytest.raises(BadInput, match="a table of 32 absolute positions and was given 33 tokens"):
                model.generate(ids[:, 1:30], max_new_tokens=8, min_new_tokens=8)
            # Packed sequences, each from position 0
            model(ids, position_ids=torch.arange(TRAIN_LENGTH + 1)[None] % 20)


OWN_BIAS: dict[str, tuple[str, dict[str, Any]]] = {
    "longt5": ("LongT5ForConditionalGeneration", {"encoder_attention_type": "transient-global"}),
    "udop": ("UdopForConditionalGeneration", {"image_size": 32}),
    "pop2piano": ("Pop2PianoForConditionalGeneration", {}),
}


@pytest.mark.parametrize("name", OWN_BIAS)
def test_a_bias_that_is_not_read_is_refused(name: str) -> None:
    kind, sizes = OWN_BIAS[name]
    model = getattr(transformers, kind)(transformers.AutoConfig.for_model(name, **{**T5_SIZES, **sizes}))
    with pytest.raises(BadInput, match="adds a position_bias of its own"), lw.extend(model, "none"):
        pass


def test_a_mask_that_a_layer_makes_of_its_values_is_refused() -> None:
    if not hasattr(transformers, "DogeConfig"):
        pytest.skip("this transformers has no Doge")
    model = transformers.DogeForCausalLM(transformers.DogeConfig(**DECODER_SIZES))
    with pytest.raises(BadInput, match="makes a mask of its own"), lw.extend(model, "log"):
        pass


def test_two_models_can_be_extended_at_once() -> None:
    first, second = make("t5"), make("llama")
    ids = tokens(LONG)
    with lw.extend(first, "log"):
        with lw.extend(second, "log"):
            expected = logits(second, ids)
        logits(first, ids)
    with lw.extend(second, "log"):
        assert torch.equal(logits(second, ids), expected)


def test_two_models_of_one_config_may_end_in_any_order() -> None:
    model = make("llama")
    twin = transformers.LlamaForCausalLM(model.config).eval()
    short, ids = tokens(TRAIN_LENGTH), tokens(LONG)
    plain, before = logits(twin, short), model.config._attn_implementation
    with lw.extend(twin, "log"):
        expected = logits(twin, ids)
    first, second = lw.extend(model, "log"), lw.extend(twin, "log")
    first.__enter__()
    second.__enter__()
    assert torch.equal(logits(twin, short), plain)
    first.__exit__(None, None, None)
    assert torch.equal(logits(twin, ids), expected)
    second.__exit__(None, None, None)
    assert model.config._attn_implementation == before
    assert torch.equal(logits(twin, short), plain)


def test_a_model_and_its_base_are_one() -> None:
    model, ids = make("llama"), tokens(LONG)
    plain = logits(model, ids)
    with lw.extend(model, "log+rerope"):
        both = logits(model, ids)
    with lw.extend(model, "log"), lw.extend(model.model, "rerope"):
        assert torch.equal(logits(model, ids), both)
        with suspended(model):
            assert torch.equal(logits(model, ids), plain)
    with lw.extend(model.model, "rerope"), suspended(model):
        assert torch.equal(logits(model, ids), plain)
    outer, inner = lw.extend(model, "log"), lw.extend(model.model, "window")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(BadInput, match="left first; both are undone now"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    assert torch.equal(logits(model, ids), plain)
    assert not any(key.startswith("_lengthwise") for module in model.modules() for key in vars(module))


def test_a_model_that_sees_is_extended_where_it_reads() -> None:
    size = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    text = {**size, "vocab_size": 384, "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 8}
    sight = {**size, "num_hidden_layers": 1, "image_size": 32, "patch_size": 8}
    config = transformers.Gemma3Config(text_config={**text, "max_position_embeddings": TRAIN_LENGTH}, vision_config=sight)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    reader, ids = model.model.language_model, tokens(LONG)
    assert anatomy_of(model).stack is reader
    with lw.extend(reader, "constant:tau=0.5"):
        expected = logits(model, ids)
    with lw.extend(model, "constant:tau=0.5"):
        assert torch.equal(logits(model, ids), expected)
    assert not torch.equal(logits(model, ids), expected)


def test_positions_of_several_axes_are_refused_where_a_method_knows_one() -> None:
    """Qwen-VL's rotary embedding is handed time, height and width, which are one and the same in text."""
    module = make("llama").model.rotary_emb
    forward, states = no_rotation(Rotary(module, module.inv_freq)), torch.zeros(1, LONG, 32)
    flat = torch.arange(LONG)[None]
    cos, sin = forward(states, position_ids=flat)
    assert bool((cos == 1).all())
    assert bool((sin == 0).all())
    picture = flat.expand(3, 1, -1).clone()
    picture[2, 0, 8:24] = 8 + torch.arange(16) % 4
    for handed in ((states, picture), (states,)):
        with pytest.raises(BadInput, match="these positions have several axes, as pictures do"):
            forward(*handed, **({} if len(handed) > 1 else {"position_ids": picture}))


def test_a_decoder_that_shares_its_encoders_config_is_refused_by_name() -> None:
    of_each = {"layers": 1, "attention_heads": 2, "ffn_dim": 8}
    sizes = {f"{stack}_{what}": size for stack in ("encoder", "decoder") for what, size in of_each.items()}
    config = transformers.BartConfig(vocab_size=384, d_model=8, max_position_embeddings=128, **sizes)
    model = transformers.BartForConditionalGeneration(config)
    with pytest.raises(BadInput, match="encoder and the decoder of this bart share one config"), lw.extend(model, "log"):
        pass
    with lw.extend(model.model.encoder, "constant:tau=0.5", train_length=32):
        model.model.encoder(tokens(64))


@pytest.mark.parametrize("method", ["ntk:factor=4,dynamic=true", "clex"])
def test_frequencies_that_follow_the_length_refuse_packed_sequences(method: str) -> None:
    model, ids = make("llama"), tokens(LONG)
    packed = torch.cat([torch.arange(LONG - 20), torch.arange(20)])[None]
    with lw.extend(model, method):
        with pytest.raises(BadInput, match="packed, several to a row"):
            model(ids, position_ids=packed, use_cache=False)
        model(ids, position_ids=torch.arange(LONG)[None], use_cache=False)


@pytest.mark.parametrize("name", UNREACHABLE)
def test_families_that_bypass_the_interface_are_refused_before_any_result(name: str) -> None:
    model = make(name)
    before = snapshot(model)
    with pytest.raises(lw.BadInput, match="attention"), lw.extend(model, "log", train_length=TRAIN_LENGTH):
        logits(model, tokens(LONG))
    assert_same(before, snapshot(model))


def test_a_layer_that_is_skipped_withholds_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("t5")
    attention = model.encoder.block[1].layer[0].SelfAttention
    own = attention.forward

    def sneaky(*args: Any, **kwargs: Any) -> Any:
        attention.config._attn_implementation_internal = "eager"
        try:
            return own(*args, **{**kwargs, "mask": None})
        finally:
            attention.config._attn_implementation_internal = "lengthwise"

    monkeypatch.setattr(attention, "forward", sneaky)
    with pytest.raises(lw.BadInput, match="1 of 3 attention layers of T5Stack were not reached"), lw.extend(model, "log"):
        logits(model, tokens(LONG))


def test_what_the_equation_does_not_have_is_refused() -> None:
    gemma2 = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**DECODER_SIZES)).eval()
    with pytest.raises(lw.BadInput, match="softcap"), lw.extend(gemma2, "log", train_length=TRAIN_LENGTH):
        logits(gemma2, tokens(LONG))
    model = make("llama")
    with pytest.raises(lw.BadInput, match="row_statistics"), lw.extend(model, "log"):
        model(tokens(LONG), output_attentions=True)


def test_packed_sequences_do_not_see_each_other() -> None:
    model = make("llama")
    first, second = tokens(40, seed=1), tokens(50, seed=2)
    packed = torch.cat([first, second], 1)
    positions = torch.cat([torch.arange(40), torch.arange(50)])[None]
    with lw.extend(model, "log"), torch.no_grad():
        together = model(input_ids=packed, position_ids=positions, use_cache=False).logits
        apart = torch.cat([logits(model, first), logits(model, second)], 1)
    torch.testing.assert_close(together, apart, atol=TOLERANCE, rtol=TOLERANCE)


def test_a_mask_with_holes_equals_transformers() -> None:
    model = make("t5")
    ids = tokens(LONG)
    mask = torch.ones_like(ids)
    mask[0, 20:40] = 0
    expected = logits(model, ids, mask)
    with lw.extend(model, "none", train_length=2):
        torch.testing.assert_close(logits(model, ids, mask), expected, atol=TOLERANCE, rtol=TOLERANCE)


def causal_mask(length: int) -> torch.Tensor:  # [1, 1, length, length]
    return torch.ones(length, length, dtype=torch.bool).tril()[None, None]


def test_a_callers_mask_is_read_once_a_forward_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids, mask = make("llama"), tokens(LONG), causal_mask(LONG)
    reads: list[int] = []
    own = masks._of_dense
    monkeypatch.setattr(masks, "_of_dense", lambda *args: reads.append(1) or own(*args))
    method = T5Bias(heads=4)
    with lw.extend(model, method):
        before = logits(model, ids, mask)
        assert len(reads) == 1
        with torch.no_grad():
            method.table.copy_(torch.randn(method.table.shape, generator=torch.Generator().manual_seed(0)))
        after = logits(model, ids, mask)
        assert len(reads) == 2
        torch.testing.assert_close(after, logits(model, ids), atol=TOLERANCE, rtol=TOLERANCE)
        assert not torch.allclose(after, before, atol=1e-3)
        for _ in range(2):
            model(ids, attention_mask=mask, labels=ids, use_cache=False).loss.backward()
        layer = LAYER.on(model.model.layers[0].self_attn)
        assert layer is not None
        assert not layer.read
    assert not vars(mask)


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
    model, ids = make(name).train(), tokens(length)
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
            torch.testing.assert_close(again, plain, atol=1e-5 * max(1.0, float(plain.abs().max())), rtol=1e-4)


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


def test_an_alignment_for_another_model_is_refused_unless_forced() -> None:
    from dataclasses import replace

    from lengthwise.models.anatomy import anatomy_of
    from lengthwise.models.fingerprint import fingerprint_of

    model, other = make("t5", seed=0), make("t5", seed=1)
    table = replace(alignment(model), model=fingerprint_of(anatomy_of(model)))
    with lw.extend(model, table):
        pass
    with pytest.raises(lw.BadInput, match="made for"), lw.extend(other, table):
        pass
    with lw.extend(other, table, force=True):
        pass


@pytest.mark.parametrize(
    ("scope", "tau", "has"),
    [
        ("layer", [0.5, 0.5], "2 layers"),
        ("layer", [0.5] * 4, "4 layers"),
        ("head", [[0.5] * 4] * 2, "2 layers of 4 heads"),
        ("head", [[0.5] * 2] * 3, "3 layers of 2 heads"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_table_that_does_not_fit_the_model_is_refused_even_by_force(scope: str, tau: Any, has: str, force: bool) -> None:
    model = make("t5")
    with pytest.raises(lw.BadInput, match=f"has temperatures for {has}, and this model has 3 layers of 4 heads; calibrate"):
        lw.extend(model, alignment(model, tau, scope), force=force).__enter__()


def test_a_fingerprint_does_not_change_with_the_data_type_or_the_wrapper() -> None:
    from lengthwise.models.anatomy import anatomy_of
    from lengthwise.models.fingerprint import fingerprint_of

    model = make("t5")
    expected = fingerprint_of(anatomy_of(model))["weights"]
    encoder = transformers.T5EncoderModel(model.config).eval()
    encoder.load_state_dict(model.state_dict(), strict=False)
    assert fingerprint_of(anatomy_of(encoder))["weights"] == expected
    assert fingerprint_of(anatomy_of(copy.deepcopy(model).bfloat16()))["weights"] == expected


def test_an_alignment_fits_its_model_in_every_data_type() -> None:
    from dataclasses import replace

    from lengthwise.models.anatomy import anatomy_of
    from lengthwise.models.fingerprint import fingerprint_of

    model, other = make("llama", seed=0), make("llama", seed=1)
    whole, half = (copy.deepcopy(model) for _ in range(2))
    half.half()
    assert fingerprint_of(anatomy_of(half))["weights"] != fingerprint_of(anatomy_of(whole))["weights"]
    for made, used in ((whole, half), (half, whole), (whole, copy.deepcopy(model).bfloat16())):
        table = replace(alignment(model), model=fingerprint_of(anatomy_of(made)))
        with lw.extend(used, table):
            pass
        with pytest.raises(lw.BadInput, match="made for"), lw.extend(other, table):
            pass


def test_offloaded_weights_are_refused_before_the_first_forward() -> None:
    model = make("llama")
    model.model.layers[1].self_attn.to("meta")
    with pytest.raises(lw.BadInput, match=r"^weights are offloaded and cannot be read; load the model without device_map$"):
        lw.calibrate(model, transformers.ByT5Tokenizer(), 64, train_length=32, show_progress=False)


@pytest.mark.parametrize("verb", ["evaluate", "reach", "misalignment", "analyse"])
def test_verbs_that_name_methods_are_refused_where_one_is_in_force(verb: str, tmp_path: Path) -> None:
    """Its numbers would stand under other names, and be kept so."""
    model, tokenizer = make("llama"), transformers.ByT5Tokenizer()
    options = {"analyse": {"lengths": [64], "out": tmp_path / "x"}, "evaluate": {"lengths": [64], "out": tmp_path / "x"}}
    with (
        lw.extend(model, "constant:tau=0.5"),
        pytest.raises(
            lw.BadInput, match=rf"^this model is extended already, and {verb} extends it itself; leave `extend` first"
        ),
    ):
        getattr(lw, verb)(model, tokenizer, show_progress=False, **options.get(verb, {}))
    assert not (tmp_path / "x").exists()


def test_an_extended_model_is_not_baked() -> None:
    model = make("t5")
    with lw.extend(model, "log"), pytest.raises(BadInput, match="this model is extended already, and bake extends it itself"):
        lw.bake(model, "constant:tau=0.8", length=LONG)


def test_a_half_precision_t5_is_refused() -> None:
    with pytest.raises(lw.BadInput, match="float16 overflows"), lw.extend(make("t5").half(), "log"):
        pass


class Counted:
    """A law that counts how often it is asked."""

    def __init__(self, spared: int) -> None:
        self.spared, self.asked = spared, 0

    def inverse_temperature(self, visible: torch.Tensor, layer: int = 0) -> torch.Tensor:
        self.asked += 1
        return torch.where(visible > self.spared, 1.5, 1.0)


def test_a_law_that_spares_the_training_length_is_not_asked_at_every_token() -> None:
    model = make("llama")
    room = TRAIN_LENGTH - 8
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(tokens(8), **options, max_new_tokens=room)
    asked = []
    for more in (1, room):
        law = Counted(TRAIN_LENGTH)
        with lw.extend(model, law, train_length=TRAIN_LENGTH):
            found = model.generate(tokens(8), **options, max_new_tokens=more)
        asked.append(law.asked)
        assert torch.equal(found, expected[:, : 8 + more])
    assert asked[0] == asked[1] > 0


def test_a_law_that_spares_the_training_length_alone_still_changes_shorter_inputs() -> None:
    """CLEX's factor goes by the widest row: 1 at the training length, below 1 before it."""
    model = make("llama")
    with lw.extend(model, "clex", train_length=TRAIN_LENGTH):
        same, changed = (logits(model, tokens(length)) for length in (TRAIN_LENGTH, TRAIN_LENGTH - 1))
    assert torch.equal(same, logits(model, tokens(TRAIN_LENGTH)))
    assert not torch.allclose(changed, logits(model, tokens(TRAIN_LENGTH - 1)), atol=1e-5)


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


def test_importing_lengthwise_changes_nothing() -> None:
    code = """
import torch, transformers
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as masks
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions
before = dict(masks), dict(functions), torch.nn.functional.scaled_dot_product_attention
import lengthwise, lengthwise.cli
assert before == (dict(masks), dict(functions), torch.nn.functional.scaled_dot_product_attention)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_facts_of_a_model_fill_what_a_spec_leaves_out() -> None:
    model = make("t5")
    ids = tokens(LONG)
    g = math.sqrt((1 - LONG ** (-2 / 8)) / (1 - TRAIN_LENGTH ** (-2 / 8)))
    with lw.extend(model, "infoscale"):
        given = logits(model, ids)
    with lw.extend(model, f"constant:tau={1 / g}"):
        torch.testing.assert_close(given, logits(model, ids), atol=TOLERANCE, rtol=TOLERANCE)
