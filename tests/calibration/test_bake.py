"""Baked checkpoints, saved and loaded by plain transformers, against the extended model they were made from."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import lengthwise as lw
import lengthwise.calibration.fold as fold_module
from lengthwise.methods.temperature.aligned import Calibrated
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.small_decoder import SmallDecoderConfig, SmallDecoderForCausalLM
from tests.conftest import (
    BERT_SIZES,
    DECODER_SIZES,
    DECODERS,
    ENCODERS,
    FAMILIES,
    TRAIN_LENGTH,
    UNREACHABLE,
    logits,
    make,
    tokens,
)
from tests.helpers import gau
from tests.helpers.sweep import crossed

LONG = 4 * TRAIN_LENGTH
TAU = 0.6
LAYERS, HEADS = 3, 4
WINDOWED = {"mistral window": 48, "gemma3": 48}
PER_LAYER = [0.9, 0.6, 0.7]
PER_HEAD = [[0.8, 0.8, 0.8, 0.8], [0.5, 0.6, 0.7, 0.8], [0.9, 0.5, 0.95, 0.6]]


def alignment(tau: Any = TAU, scope: str = "model") -> lw.Alignment:
    return lw.Alignment("pmax", scope, TRAIN_LENGTH, 0.5, (Calibrated(LONG, tau, 0.5, 3),))


@dataclass(frozen=True)
class Everywhere:
    """The temperatures of a table for every row, however few keys it sees."""

    tau: list[list[float]]  # [layers, heads]

    def inverse_temperature(self, visible: torch.Tensor, layer: int = 0) -> torch.Tensor:
        return (1 / torch.tensor(self.tau[layer]))[None, :, None].expand(visible.shape[0], -1, visible.shape[-1])


def extended_logits(model: Any, method: Any, ids: torch.Tensor) -> torch.Tensor:
    with lw.extend(model, method, train_length=TRAIN_LENGTH):
        return logits(model, ids)


def reloaded(baked: Any, folder: Path) -> Any:
    """Through a checkpoint on disk, with nothing of lengthwise on the way back."""
    baked.save_pretrained(folder)
    assert list(folder.glob("*.safetensors"))
    return type(baked).from_pretrained(folder).eval()


def assert_same_logits(model: Any, stock: Any, method: Any) -> None:
    """`stock` says what `model` says under `method`; what `model` says alone is a hundred times further off."""
    ids = tokens(LONG)
    expected = extended_logits(model, method, ids)
    error = relative_error(logits(stock, ids), expected)
    # Some 170 roundings of float32, one way or the other with the processor
    assert error < 2e-5
    assert error < 0.01 * relative_error(logits(model, ids), expected)


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def assert_untouched(model: Any, before: dict[str, torch.Tensor]) -> None:
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert not hasattr(model.config, "lengthwise")


@pytest.mark.parametrize("name", [*ENCODERS, "bert", "roberta"])
def test_a_baked_encoder_is_the_extended_one_at_the_baked_length(name: str, tmp_path: Path) -> None:
    model = make(name)
    baked = lw.bake(model, alignment(), length=LONG, train_length=TRAIN_LENGTH)
    assert_same_logits(model, reloaded(baked, tmp_path), alignment())


@pytest.mark.parametrize("name", DECODERS)
def test_a_baked_decoder_has_one_temperature_for_all_rows(name: str, tmp_path: Path) -> None:
    """That of the baked length; in a layer with a window that of the window, as no row sees more."""
    model = make(name)
    baked = lw.bake(model, alignment(), length=LONG)
    kinds = getattr(model.config, "layer_types", None) or [None] * 3
    seen = [LONG if kind == "full_attention" else WINDOWED.get(name, LONG) for kind in kinds]
    sharpness = [1 + (1 / TAU - 1) * math.log(n / TRAIN_LENGTH) / math.log(LONG / TRAIN_LENGTH) for n in seen]

    class OfLayers:
        """One number a layer."""

        def inverse_temperature(self, visible: torch.Tensor, layer: int) -> torch.Tensor:
            return torch.full_like(visible, sharpness[layer], dtype=torch.float32)

    assert_same_logits(model, reloaded(baked, tmp_path), OfLayers())


# All but ModernBERT are baked above as well
@pytest.mark.parametrize("name", crossed([*FAMILIES], every=3, whole={"modernbert"}))
def test_every_family_can_carry_a_constant_temperature(name: str, tmp_path: Path) -> None:
    model = make(name)
    baked = lw.bake(model, f"constant:tau={TAU}", length=LONG)
    assert_same_logits(model, reloaded(baked, tmp_path), f"constant:tau={TAU}")


def test_local_layers_that_see_no_more_than_before_are_left_alone(tmp_path: Path) -> None:
    """ModernBERT's rows see 31 keys in local layers at any length; only global layers take the temperature."""
    torch.manual_seed(0)
    config = transformers.ModernBertConfig(**BERT_SIZES, local_attention=30, cls_token_id=1, sep_token_id=2)
    model = transformers.ModernBertForMaskedLM(config).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.attn.Wqkv.weight, std=0.5)
    baked = lw.bake(model, alignment(), length=LONG, train_length=TRAIN_LENGTH)
    changed = [
        not torch.equal(a.attn.Wqkv.weight, b.attn.Wqkv.weight)
        for a, b in zip(model.model.layers, baked.model.layers, strict=True)
    ]
    assert changed == [kind == "full_attention" for kind in config.layer_types]
    assert_same_logits(model, reloaded(baked, tmp_path), alignment())


def test_layers_with_and_without_a_window_are_told_apart(tmp_path: Path) -> None:
    torch.manual_seed(0)
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    model = transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(**DECODER_SIZES, sliding_window=16, layer_types=kinds)
    ).eval()
    baked = lw.bake(model, alignment(), length=LONG)
    assert_same_logits(model, reloaded(baked, tmp_path), Everywhere([[1.0] * 4, [TAU] * 4, [1.0] * 4]))


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "phi3", "olmo2", "gemma", "bert", "modernbert", "umt5"])
def test_a_temperature_a_head_is_baked(name: str, tmp_path: Path) -> None:
    model = make(name)
    everywhere = Everywhere(PER_HEAD)
    method: Any = everywhere if name == "modernbert" else alignment(PER_HEAD, "head")
    baked = lw.bake(model, method, length=LONG, train_length=TRAIN_LENGTH)
    assert_same_logits(model, reloaded(baked, tmp_path), everywhere)


def test_a_temperature_a_head_is_baked_into_a_shared_bias_where_layers_agree(tmp_path: Path) -> None:
    model = make("t5")
    table = alignment([PER_HEAD[1]] * LAYERS, "head")
    assert_same_logits(model, reloaded(lw.bake(model, table, length=LONG), tmp_path), table)


@pytest.mark.parametrize("name", ["umt5", "llama", "qwen3", "gemma3", "bert"])
def test_a_temperature_a_layer_is_baked(name: str, tmp_path: Path) -> None:
    model = make(name)
    everywhere = Everywhere([[tau] * HEADS for tau in PER_LAYER])
    method: Any = everywhere if name in WINDOWED else alignment(PER_LAYER, "layer")
    baked = lw.bake(model, method, length=LONG, train_length=TRAIN_LENGTH)
    assert_same_logits(model, reloaded(baked, tmp_path), everywhere)


def small_decoder(positions: str = "alibi") -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 384, "hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    config = SmallDecoderConfig(**sizes, positions=positions, max_position_embeddings=TRAIN_LENGTH, initializer_range=0.4)
    return SmallDecoderForCausalLM(config).eval()


@pytest.mark.parametrize("positions", ["alibi", "rope", "nope"])
@pytest.mark.parametrize("method", [f"constant:tau={TAU}", Everywhere(PER_HEAD)], ids=["model", "head"])
def test_a_small_decoder_is_baked_with_its_slopes(positions: str, method: Any, tmp_path: Path) -> None:
    """No checkpoint holds ALiBi's slopes: they are made anew when it is loaded."""
    model = small_decoder(positions)
    baked = lw.bake(model, method, length=LONG)
    stock = reloaded(baked, tmp_path)
    assert_same_logits(model, stock, method)
    assert torch.equal(logits(stock, tokens(LONG)), logits(baked, tokens(LONG)))


@pytest.mark.parametrize("make_one", [small_decoder, lambda: gau.tiny(positions="alibi", alibi_slope=0.3)])
def test_slopes_are_baked_twice_and_only_in_the_copy(make_one: Any, tmp_path: Path) -> None:
    model = make_one()
    slopes = [layer.relative_attention_bias.weight.clone() for layer in anatomy_of(model).layers]
    twice = lw.bake(lw.bake(model, "constant:tau=0.8", length=LONG), "constant:tau=0.75", length=LONG)
    assert_same_logits(model, reloaded(twice, tmp_path), "constant:tau=0.6")
    for layer, before in zip(anatomy_of(model).layers, slopes, strict=True):
        assert torch.equal(layer.relative_attention_bias.weight, before)
    assert model.config.alibi_factors is None


GAU: dict[str, dict[str, Any]] = {
    "rope": {},
    "softmax plus": {"normalisation": "softmax_plus"},
    "infoscale": {"normalisation": "infoscale"},
    "nope": {"positions": "nope"},
    "alibi": {"positions": "alibi", "alibi_slope": 0.3},
}


@pytest.mark.parametrize("choice", GAU)
@pytest.mark.parametrize("method", [alignment(), alignment(PER_LAYER[:2], "layer")], ids=["model", "layer"])
def test_gau_alpha_is_baked_into_what_makes_its_queries(choice: str, method: Any, tmp_path: Path) -> None:
    model = gau.tiny(**GAU[choice])
    baked = lw.bake(model, method, length=LONG)
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, baked.state_dict()[key])}
    assert changed == {f"model.layers.{i}.attention.gamma_q" for i in range(2)}
    stock = reloaded(baked, tmp_path)
    assert_same_logits(model, stock, method)
    assert stock.lm_head.weight is stock.model.embed_tokens.weight


@pytest.mark.parametrize("positions", ["rope", "alibi"])
def test_queries_of_length_1_are_refused(positions: str) -> None:
    model = gau.tiny(cos_scale=20.0, positions=positions)
    before = weights_of(model)
    with pytest.raises(lw.BadInput, match="GAUAlphaAttention brings its queries to length 1") as caught:
        lw.bake(model, alignment(), length=LONG, inplace=True)
    assert "\n" not in str(caught.value)
    assert_untouched(model, before)


GPT2: dict[str, dict[str, Any]] = {
    "plain": {},
    "divided by the layer": {"scale_attn_by_inverse_layer_idx": True},
    "upcast": {"reorder_and_upcast_attn": True, "attn_implementation": "eager"},
    "both": {
        "scale_attn_by_inverse_layer_idx": True,
        "reorder_and_upcast_attn": True,
        "attn_implementation": "eager",
        "tie_word_embeddings": False,
    },
}


def gpt2(**choices: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 384, "n_embd": 32, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 512}
    config = transformers.GPT2Config(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=2, **choices)
    model = transformers.GPT2LMHeadModel(config).eval()
    for block in model.transformer.h:
        torch.nn.init.normal_(block.attn.c_attn.weight, std=0.5)
        torch.nn.init.normal_(block.attn.c_attn.bias, std=0.5)
    return model


@pytest.mark.parametrize("choice", GPT2)
@pytest.mark.parametrize("method", [f"constant:tau={TAU}", Everywhere(PER_HEAD)], ids=["model", "head"])
def test_gpt2_is_baked_into_the_queries_of_its_one_projection(choice: str, method: Any, tmp_path: Path) -> None:
    model = gpt2(**GPT2[choice])
    baked = lw.bake(model, method, length=LONG, train_length=TRAIN_LENGTH)
    for old, new in zip(model.transformer.h, baked.transformer.h, strict=True):
        for before, after in zip(old.attn.c_attn.parameters(), new.attn.c_attn.parameters(), strict=True):
            assert not torch.equal(after[..., :32], before[..., :32])
            assert torch.equal(after[..., 32:], before[..., 32:])
    baked.save_pretrained(tmp_path)
    implementation = GPT2[choice].get("attn_implementation", "sdpa")
    stock = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation=implementation).eval()
    assert_same_logits(model, stock, method)
    assert (stock.lm_head.weight is stock.transformer.wte.weight) is stock.config.tie_word_embeddings
    assert torch.equal(stock.lm_head.weight, model.lm_head.weight)


def test_a_baked_gpt2_generates_what_the_extended_one_does(tmp_path: Path) -> None:
    model, ids = gpt2(), tokens(LONG)
    lw.bake(model, f"constant:tau={TAU}", length=LONG, train_length=TRAIN_LENGTH).save_pretrained(tmp_path)
    stock = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    found, plain = (m.generate(ids, max_new_tokens=12, do_sample=False)[0].tolist() for m in (stock, model))
    with lw.extend(model, f"constant:tau={TAU}", train_length=TRAIN_LENGTH):
        assert found == model.generate(ids, max_new_tokens=12, do_sample=False)[0].tolist()
    assert found != plain


def test_a_gpt2_that_reads_another_models_states_is_refused() -> None:
    """Its second kind of attention makes keys and values where the first makes queries, too."""
    model = gpt2(add_cross_attention=True)
    before = weights_of(model)
    with pytest.raises(lw.BadInput):
        lw.bake(model, f"constant:tau={TAU}", length=LONG, train_length=TRAIN_LENGTH, inplace=True)
    assert_untouched(model, before)


def test_a_law_is_baked_at_the_value_it_has_at_the_length(tmp_path: Path) -> None:
    model = make("t5")
    stock = reloaded(lw.bake(model, "log", length=LONG), tmp_path)
    assert_same_logits(model, stock, f"constant:tau={math.log(TRAIN_LENGTH) / math.log(LONG)}")


REFUSALS: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "layers that differ on a shared bias": ("t5", alignment(PER_LAYER, "layer"), {}, "T5Stack share one bias table"),
    "heads that differ between layers on a shared bias": ("mt5", alignment(PER_HEAD, "head"), {}, "share one bias table"),
    "heads behind a shared norm": ("qwen3", alignment(PER_HEAD, "head"), {}, "share the norm of their queries"),
    "heads behind a shared norm of Gemma": ("gemma3", Everywhere(PER_HEAD), {}, "share the norm of their queries"),
    "the training length": ("t5", alignment(), {"length": TRAIN_LENGTH}, "length 32 the temperature is 1"),
    "less than the training length": ("llama", alignment(), {"length": 5}, "length 5 the temperature is 1"),
    "no temperature": ("t5", "none", {}, "fills: nothing"),
    "another family's alignment": ("t5", replace(alignment(), model={"family": "llama"}), {}, "its family is llama"),
}


@pytest.mark.parametrize("case", REFUSALS)
@pytest.mark.parametrize("inplace", [False, True])
def test_a_refusal_changes_nothing(case: str, inplace: bool) -> None:
    name, method, options, message = REFUSALS[case]
    model = make(name)
    before = weights_of(model)
    with pytest.raises(lw.BadInput, match=message) as caught:
        lw.bake(model, method, **{"length": LONG, **options}, inplace=inplace)
    assert "\n" not in str(caught.value)
    assert_untouched(model, before)


@pytest.mark.parametrize("name", UNREACHABLE)
def test_a_family_that_cannot_be_extended_is_not_baked_either(name: str) -> None:
    model = make(name)
    before = weights_of(model)
    with pytest.raises(lw.BadInput, match="attention"):
        lw.bake(model, f"constant:tau={TAU}", length=LONG, train_length=TRAIN_LENGTH, inplace=True)
    assert_untouched(model, before)


def test_what_stands_between_queries_and_softmax_is_refused() -> None:
    gemma2 = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**DECODER_SIZES)).eval()
    before = weights_of(gemma2)
    with pytest.raises(lw.BadInput, match="softcap"):
        lw.bake(gemma2, f"constant:tau={TAU}", length=LONG, inplace=True)
    assert_untouched(gemma2, before)


def test_queries_that_are_clipped_are_refused() -> None:
    attention = {"clip_qkv": 1.0, "kv_n_heads": 2, "rope_theta": 1e4}
    sizes = {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 64, "max_seq_len": TRAIN_LENGTH}
    feed_forward = {"ffn_hidden_size": 32, "moe_num_experts": 2, "moe_top_k": 1}
    config = transformers.DbrxConfig(**sizes, attn_config=attention, ffn_config=feed_forward)
    with pytest.raises(lw.BadInput, match="clips q"):
        lw.bake(transformers.DbrxForCausalLM(config).eval(), f"constant:tau={TAU}", length=LONG)


def test_a_model_that_does_not_do_as_extended_is_given_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("llama")
    before = weights_of(model)
    monkeypatch.setattr("lengthwise.calibration.bake.fold", lambda anatomy, g: fold_module.fold(anatomy, 2 * g))
    with pytest.raises(lw.BadInput, match="not baked"):
        lw.bake(model, f"constant:tau={TAU}", length=LONG, inplace=True)
    assert_untouched(model, before)


def test_slopes_of_a_model_that_was_not_baked_are_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = small_decoder(), tokens(8)
    before = model(ids).logits
    monkeypatch.setattr("lengthwise.calibration.bake._agree", lambda *_: False)
    with pytest.raises(lw.BadInput, match="not baked"):
        lw.bake(model, f"constant:tau={TAU}", length=LONG, inplace=True)
    torch.testing.assert_close(model(ids).logits, before)
    assert model.config.alibi_factors is None


def test_offloaded_weights_are_refused() -> None:
    model = make("t5")
    model.encoder.block[1].to("meta")
    with pytest.raises(lw.BadInput, match=r"^weights are offloaded; load the model without device_map to bake it$"):
        lw.bake(model, alignment(), length=LONG)


def test_an_adapter_must_be_merged_first(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules=["v_proj"], init_lora_weights=False)
    model = peft.get_peft_model(make("llama"), lora).eval()
    method = f"constant:tau={TAU}"
    with pytest.raises(lw.BadInput, match="merge it first"):
        lw.bake(model, method, length=LONG)
    merged = model.merge_and_unload()
    lw.bake(merged, method, length=LONG).save_pretrained(tmp_path)
    assert_same_logits(merged, transformers.LlamaForCausalLM.from_pretrained(tmp_path).eval(), method)


def test_a_copy_is_baked_unless_inplace_is_asked_for() -> None:
    model = make("t5")
    before = weights_of(model)
    baked = lw.bake(model, alignment(), length=LONG)
    assert baked is not model
    assert_untouched(model, before)
    assert lw.bake(model, alignment(), length=LONG, inplace=True) is model
    assert all(torch.equal(value, baked.state_dict()[key]) for key, value in model.state_dict().items())


def test_only_queries_and_biases_of_the_encoder_change() -> None:
    model = make("t5")
    baked = lw.bake(model, alignment(), length=LONG).state_dict()
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, baked[key])}
    attention = "encoder.block.{}.layer.0.SelfAttention.{}.weight"
    assert changed == {*(attention.format(i, "q") for i in range(LAYERS)), attention.format(0, "relative_attention_bias")}
    for key in changed:
        torch.testing.assert_close(baked[key], model.state_dict()[key] / TAU, atol=0, rtol=1e-6)


def test_an_alignment_for_another_model_is_refused_unless_forced() -> None:
    model, other = make("t5", seed=0), make("t5", seed=1)
    table = replace(alignment(), model=model_fingerprint(anatomy_of(model)))
    lw.bake(model, table, length=LONG)
    with pytest.raises(lw.BadInput, match="made for"):
        lw.bake(other, table, length=LONG)
    assert_same_logits(other, lw.bake(other, table, length=LONG, force=True), alignment())


@pytest.mark.parametrize("name", ["t5", "llama", "qwen3"])
def test_an_alignment_is_not_baked_twice(name: str) -> None:
    model = make(name)
    table = replace(alignment(), model=model_fingerprint(anatomy_of(model)))
    once = lw.bake(model, table, length=LONG)
    before = copy.deepcopy(once.state_dict())
    with pytest.raises(lw.BadInput, match="made for another model: its weights is"):
        lw.bake(once, table, length=LONG, inplace=True)
    assert all(torch.equal(value, before[key]) for key, value in once.state_dict().items())


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.parametrize("name", ["t5", "llama", "qwen3", "gemma3"])
def test_a_bfloat16_model_stays_bfloat16_and_close(name: str, tmp_path: Path) -> None:
    model = make(name).bfloat16()
    baked = lw.bake(model, f"constant:tau={TAU}", length=LONG)
    assert {parameter.dtype for parameter in baked.parameters()} == {torch.bfloat16}
    stock = reloaded(baked, tmp_path)
    assert stock.dtype == torch.bfloat16
    ids = tokens(LONG)
    wide = copy.deepcopy(model).float()
    expected = extended_logits(wide, f"constant:tau={TAU}", ids)
    # One more rounding of the queries must not cost more than bfloat16 itself does
    own_error = relative_error(extended_logits(model, f"constant:tau={TAU}", ids).float(), expected)
    assert relative_error(logits(stock, ids).float(), expected) < 2 * own_error
    assert 2 * own_error < relative_error(logits(wide, ids), expected)


def test_the_config_keeps_a_note_of_what_was_baked(tmp_path: Path) -> None:
    lw.bake(make("llama"), alignment(PER_LAYER, "layer"), length=LONG).save_pretrained(tmp_path)
    note = transformers.AutoConfig.from_pretrained(tmp_path).lengthwise
    assert note["baked_length"] == LONG
    assert note["tau"] == pytest.approx(PER_LAYER)
    assert note["per_head"] is False
    by_head = lw.bake(make("llama"), alignment(PER_HEAD, "head"), length=LONG).config.lengthwise
    assert by_head["per_head"] is True
    assert torch.tensor(by_head["tau"]).flatten().tolist() == pytest.approx(torch.tensor(PER_HEAD).flatten().tolist())


def test_a_second_bake_notes_what_both_did() -> None:
    once = lw.bake(make("llama"), "constant:tau=0.8", length=LONG)
    twice = lw.bake(once, "constant:tau=0.5", length=2 * LONG)
    q = [model.model.layers[0].self_attn.q_proj.weight for model in (make("llama"), twice)]
    torch.testing.assert_close(q[1], q[0] / 0.4)
    assert once.config.lengthwise["tau"] == [0.8] * 3
    assert twice.config.lengthwise["tau"] == pytest.approx([0.4] * 3)
    assert twice.config.lengthwise["baked_length"] == 2 * LONG


@pytest.mark.parametrize("note", [5, *({"tau": tau} for tau in ("x", None, [[1], [2, 3]], [10**39], [1.0, 1.0]))])
def test_a_note_that_bake_did_not_write_is_refused(note: Any) -> None:
    model = make("llama")
    model.config.lengthwise = note
    before = model.model.layers[0].self_attn.q_proj.weight.clone()
    with pytest.raises(lw.BadInput, match=r"has a 'lengthwise' of .*, which bake did not write; take it out of config\.json"):
        lw.bake(model, "constant:tau=0.8", length=LONG, inplace=True)
    assert torch.equal(model.model.layers[0].self_attn.q_proj.weight, before)


def test_the_note_tells_the_temperature_of_the_keys_a_window_lets_through() -> None:
    """Two entries: 48 tokens and 128; a row of the windowed model never sees more than 48."""
    model = make("mistral window")
    table = lw.Alignment("pmax", "model", TRAIN_LENGTH, 0.5, (Calibrated(48, 0.8, 0.5, 3), Calibrated(128, 0.5, 0.5, 3)))
    assert lw.bake(model, table, length=128).config.lengthwise["tau"] == pytest.approx([0.8] * 3)


def test_wrappers_are_looked_through() -> None:
    model = make("t5")
    baked = lw.bake(torch.nn.DataParallel(model), alignment(), length=LONG)
    assert isinstance(baked, transformers.T5ForConditionalGeneration)
    assert_same_logits(model, baked, alignment())


def test_a_few_words_are_enough() -> None:
    model = SmallDecoderForCausalLM(SmallDecoderConfig()).eval()
    assert model.config.vocab_size < 16
    baked = lw.bake(model, "log", length=512, train_length=64)
    assert baked.config.lengthwise["baked_length"] == 512


def test_frequencies_are_left_to_export() -> None:
    with pytest.raises(lw.BadInput, match=r"only temperatures can be folded .* `lengthwise export` writes frequencies"):
        lw.bake(make("llama"), "yarn:factor=4", length=64)


@pytest.mark.parametrize("length", [10**20, 2.5, True])
def test_a_length_that_is_none_is_refused(length: Any) -> None:
    with pytest.raises(lw.BadInput, match=r"beyond all models|must be a whole number"):
        lw.bake(make("t5"), "log", length=length)
