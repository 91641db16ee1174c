"""GGUF files without llama.cpp: blocks, keys and tokenizers. What the engine makes of them is tested in tests/engines."""

from __future__ import annotations

import logging
import math
import warnings
from pathlib import Path
from typing import Any

import gguf
import numpy
import pytest
import torch
import transformers as tf
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.calibration.export.gguf_blocks import SCALES, scaled_rows
from lengthwise.calibration.export.gguf_keys import rope_keys
from lengthwise.calibration.export.gguf_tokenizer import NO_TOKENIZER
from lengthwise.calibration.export.plan import carry_out, make_plan
from lengthwise.methods.temperature.aligned import Calibrated
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, logits, make, tokens
from tests.engines.conftest import tokenizer as bpe_tokenizer

LONG = 4 * TRAIN_LENGTH
TAUS = [[0.8, 0.9, 0.7, 0.6], [0.5, 0.6, 0.7, 0.8], [0.9, 0.5, 0.95, 0.6]]


def contents(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keys, and tensors as numbers."""
    reader = gguf.GGUFReader(path)
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    return {name: entry.contents() for name, entry in reader.fields.items()}, tensors


@pytest.mark.parametrize("kind", SCALES)
def test_a_block_is_multiplied_by_its_scales(kind: str) -> None:
    randomness = numpy.random.default_rng(0)
    quantisation = gguf.GGMLQuantizationType[kind]
    elements, size = gguf.GGML_QUANT_SIZES[quantisation]
    blocks = randomness.integers(0, 256, (6, 2, size), dtype=numpy.uint8)
    for place in SCALES[kind]:
        scales = randomness.uniform(0.01, 1, (6, 2, 1)).astype(numpy.float16)
        blocks[..., place : place + 2] = scales.view(numpy.uint8)
    data, factors = blocks.reshape(6, -1), numpy.linspace(0.5, 2, 6)
    before = gguf.quants.dequantize(data, quantisation).astype(numpy.float64)
    after = gguf.quants.dequantize(scaled_rows("w", kind, data, factors, size), quantisation)
    assert before.shape == (6, 2 * elements)
    wanted = before * factors[:, None]
    # Each scale is rounded to float16, and what is added has a scale of its own
    assert numpy.abs(after - wanted).max() <= 2**-10 * numpy.abs(wanted).max()
    numpy.testing.assert_array_equal(scaled_rows("w", kind, data, numpy.ones(6), size), data)


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    values = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    factors = numpy.array([0.5, 1.1, 1.7, 3.0])
    data = values.view(torch.int16).numpy().view(numpy.uint8)
    wanted = (values.double() * torch.from_numpy(factors)[:, None]).float().bfloat16()
    made = torch.from_numpy(scaled_rows("w", "BF16", data, factors, 16).copy().view(numpy.int16)).view(torch.bfloat16)
    assert torch.equal(made, wanted)


def test_blocks_without_such_scales_are_refused() -> None:
    with pytest.raises(lw.BadInput, match="w is quantised as MXFP4, whose blocks cannot be multiplied"):
        scaled_rows("w", "MXFP4", numpy.zeros((1, 17), dtype=numpy.uint8), numpy.ones(1), 17)
    huge = numpy.frombuffer(numpy.float16(60000).tobytes() + bytes(32), dtype=numpy.uint8)[None]
    with pytest.raises(lw.BadInput, match="grow out of float16"):
        scaled_rows("w", "Q8_0", huge, numpy.array([2.0]), 34)


def test_keys_of_yarn_hold_what_is_not_its_own_attention_factor() -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
    keys = rope_keys(yarn, 32, 128).keys
    assert keys["rope.scaling.original_context_length"] == 32
    assert (keys["context_length"], keys["rope.scaling.type"], keys["rope.scaling.factor"]) == (128, "yarn", 4.0)
    assert "rope.scaling.attn_factor" not in keys
    own = 0.1 * math.log(4) + 1
    flat = rope_keys({**yarn, "attention_factor": 1.0}, 32, 128).keys
    assert flat["rope.scaling.attn_factor"] == pytest.approx(1 / own)
    sharper = rope_keys(yarn, 32, 128, sharper=1.21).keys
    assert sharper["rope.scaling.attn_factor"] == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("yarn", {"factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.5}),
        ("yarn", {"factor": None, "mscale": 1.0, "mscale_all_dim": 1.0}),
        ("longrope", {"short_factor": [1.0] * 4, "long_factor": [1.0, 1.0, 2.0, 4.0]}),
    ],
)
def test_a_file_has_the_attention_factor_that_transformers_makes(kind: str, own: dict[str, Any], tmp_path: Path) -> None:
    rope = {"rope_type": kind, "rope_theta": 1e4, "original_max_position_embeddings": TRAIN_LENGTH, **own}
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**{**DECODER_SIZES, "max_position_embeddings": LONG}, rope_parameters=rope))
    lw.export(model, "none", to="gguf", out=tmp_path, overwrite=True, tokenizer=bpe_tokenizer())
    read, _ = load(str(tmp_path / "model.gguf"), "float32")
    assert read.model.rotary_emb.attention_scaling == pytest.approx(model.model.rotary_emb.attention_scaling)
    assert torch.allclose(read.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)


def test_a_ramp_of_yarn_that_llama_cpp_rounds_is_refused(tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32, "truncate": False}
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**DECODER_SIZES, rope_parameters=rope))
    with pytest.raises(lw.BadInput, match=r"does not know YaRN's ramp between pairs \(truncate: false\)"):
        lw.export(model, "none", to="gguf", out=tmp_path / "out", tokenizer=bpe_tokenizer())


def test_weights_of_16_bits_stay_so_and_folded_ones_do_not(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    model = make("t5").bfloat16().float()
    done = lw.export(model, "constant:tau=0.6", to="gguf", out=tmp_path, overwrite=True, tokenizer=tokenizer, length=LONG)
    assert NO_TOKENIZER in done.says
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    changed = {name for name, kind in kinds.items() if name.startswith("enc.") and "attn_q" in name and kind == "F32"}
    assert len(changed) == 3
    assert kinds["enc.blk.0.attn_k.weight"] in ("F16", "BF16")
    keys, tensors = contents(tmp_path / "model.gguf")
    assert (keys["t5.context_length"], keys["t5.attention.relative_buckets_count"]) == (LONG, 32)
    bias = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach() / 0.6
    numpy.testing.assert_allclose(tensors["enc.blk.0.attn_rel_b.weight"], bias.numpy(), rtol=1e-6)


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_without_a_tokenizer_no_key_is_written_twice(
    family: str, tmp_path: Path, tokenizer: ByT5Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[Any] = []
    monkeypatch.setattr(logging.getLogger("gguf.gguf_writer"), "warning", lambda *said: warned.append(said))
    model = make(family)
    lw.export(model, "none", to="gguf", out=tmp_path, overwrite=True, tokenizer=tokenizer, length=LONG)
    assert not warned
    assert contents(tmp_path / "model.gguf")[0][f"{family}.vocab_size"] == model.config.vocab_size


@pytest.mark.parametrize("how", ["all layers", "by head"])
def test_a_rewritten_file_has_other_keys_or_other_queries(how: str, tmp_path: Path) -> None:
    model, plain = make("llama"), tmp_path / "plain"
    lw.export(model, "none", to="gguf", out=plain, tokenizer=bpe_tokenizer())
    model, _ = load(str(plain / "model.gguf"), "float32")
    by_head = lw.Alignment("pmax", "head", TRAIN_LENGTH, 0.5, (Calibrated(LONG, TAUS, 0.5, 3),))
    method: Any = ["yarn:factor=4", "constant:tau=0.64" if how == "all layers" else by_head]
    lw.export(model, method, to="gguf", out=tmp_path / "out", tokenizer=bpe_tokenizer(), length=LONG)
    before, weights = contents(plain / "model.gguf")
    after, changed = contents(tmp_path / "out" / "model.gguf")
    assert after["llama.rope.scaling.type"] == "yarn"
    kept = {name for name in before if not name.startswith("GGUF.") and name != "llama.context_length"}
    assert {name for name in kept if before[name] != after[name]} == set()
    other = {name for name in weights if not numpy.array_equal(weights[name], changed[name])}
    if how == "all layers":
        assert after["llama.rope.scaling.attn_factor"] == pytest.approx(1.25)
        assert other == set()
    else:
        assert other == {f"blk.{layer}.attn_q.weight" for layer in range(3)}
        heads = (changed["blk.1.attn_q.weight"] / weights["blk.1.attn_q.weight"]).reshape(4, -1).mean(-1)
        numpy.testing.assert_allclose(heads, 1 / numpy.array(TAUS[1]), rtol=1e-5)


def test_a_rewrite_that_the_architecture_cannot_carry_is_refused(tmp_path: Path) -> None:
    model, plain = make("qwen2"), tmp_path / "plain"
    lw.export(model, "none", to="gguf", out=plain, tokenizer=bpe_tokenizer())
    model, _ = load(str(plain / "model.gguf"), "float32")
    with pytest.raises(lw.BadInput, match="a factor for each pair of qwen2 models, which ClippedRoPE needs"):
        lw.export(model, "clipped_rope", to="gguf", out=tmp_path / "out", tokenizer=bpe_tokenizer(), length=LONG)
    assert not (tmp_path / "out").exists()


def test_rows_that_are_rotated_together_stand_side_by_side(tmp_path: Path) -> None:
    model = make("llama")
    plan = make_plan(model, "none", None, None)
    carry_out(model, plan)
    lw.export(model, "none", to="gguf", out=tmp_path / "out", tokenizer=bpe_tokenizer())
    _, tensors = contents(tmp_path / "out" / "model.gguf")
    ours = model.model.layers[0].self_attn.q_proj.weight.detach().numpy()
    order = [head * 8 + pair + half for head in range(4) for pair in range(4) for half in (0, 4)]
    numpy.testing.assert_array_equal(tensors["blk.0.attn_q.weight"], ours[order])


@pytest.mark.parametrize(("to", "package", "extra"), [("ctranslate2", "ctranslate2", "ctranslate2"), ("onnx", "onnx", "onnx")])
def test_a_package_that_is_missing_is_named(
    to: str, package: str, extra: str, tmp_path: Path, tokenizer: ByT5Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(lw.BadInput, match=rf"--to {to} needs the package {package}; pip install 'lengthwise\[{extra}\]'"):
        lw.export(make("t5"), "log", to=to, out=tmp_path / "out", tokenizer=tokenizer, length=LONG)


ROTATIONS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": TRAIN_LENGTH},
    "longrope": {
        "long_factor": [1.0, 2.0, 3.0, 4.0],
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "attention_factor": 1.2,
        "original_max_position_embeddings": TRAIN_LENGTH,
    },
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
}


def rotating(kind: str, **others: Any) -> Any:
    torch.manual_seed(0)
    rope = {"rope_type": kind, "rope_theta": 10_000.0, **ROTATIONS[kind]}
    return tf.LlamaForCausalLM(tf.LlamaConfig(**DECODER_SIZES, rope_parameters=rope, **others)).eval()


@pytest.mark.parametrize("kind", ROTATIONS)
def test_a_file_is_read_with_the_rotation_that_it_has(kind: str, tmp_path: Path) -> None:
    model = rotating(kind)
    lw.export(model, "none", to="gguf", out=tmp_path, overwrite=True, tokenizer=bpe_tokenizer())
    read, _ = load(str(tmp_path / "model.gguf"), "float32")
    torch.testing.assert_close(logits(read, tokens(LONG)), logits(model, tokens(LONG)))
    # A file with linear scaling tells the longest input only
    assert anatomy_of(read).train_length == anatomy_of(model).train_length * (2 if kind == "linear" else 1)


def pieces() -> Any:
    """A tokenizer of T5's kind, the only one that older versions of transformers read in a T5's file."""
    made = Tokenizer(
        Unigram([("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((chr(97 + n), -3.0) for n in range(26))], unk_id=2)
    )
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def test_a_t5_is_read_as_the_one_that_was_written(tmp_path: Path) -> None:
    model = make("flan-t5")
    lw.export(model, "none", to="gguf", out=tmp_path / "file", tokenizer=pieces())
    read, own = load(str(tmp_path / "file" / "model.gguf"), "float32")
    torch.testing.assert_close(logits(read, tokens(LONG)), logits(model, tokens(LONG)))
    lw.export(read, "none", out=tmp_path / "folder", tokenizer=own)
    again = tf.T5ForConditionalGeneration.from_pretrained(tmp_path / "folder").eval()
    torch.testing.assert_close(logits(again, tokens(LONG)), logits(model, tokens(LONG)))


def test_weights_that_a_file_does_not_have_are_not_left_out_of_its_copy(tmp_path: Path) -> None:
    lw.export(make("llama"), "none", to="gguf", out=tmp_path / "1", tokenizer=bpe_tokenizer())
    model, own = load(str(tmp_path / "1" / "model.gguf"), "float32")
    lw.export(model.half(), "none", to="gguf", out=tmp_path / "2", tokenizer=own)
    baked = lw.bake(model.float(), "constant:tau=0.64", length=LONG)
    with pytest.raises(lw.BadInput, match=r"weights are not those of model\.gguf any more.*; export it --to transformers"):
        lw.export(baked, "none", to="gguf", out=tmp_path / "3", tokenizer=own)
    lw.export(baked, "none", out=tmp_path / "4", tokenizer=own)
    lw.export(load(str(tmp_path / "4"))[0], "none", to="gguf", out=tmp_path / "5", tokenizer=own)
    read, _ = load(str(tmp_path / "5" / "model.gguf"), "float32")
    torch.testing.assert_close(logits(read, tokens(LONG)), logits(baked, tokens(LONG)), atol=1e-4, rtol=0)


def again(source: Path, method: str, out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, own = load(str(source / "model.gguf"))
    lw.export(model, method, to="gguf", out=out, tokenizer=own, length=LONG)
    return contents(out / "model.gguf")


def test_a_temperature_leaves_the_rotation_of_a_file_alone(tmp_path: Path) -> None:
    lw.export(rotating("llama3"), "none", to="gguf", out=tmp_path / "1", tokenizer=bpe_tokenizer())
    keys, tensors = again(tmp_path / "1", "constant:tau=0.64", tmp_path / "2")
    assert "rope_freqs.weight" in tensors
    assert keys["llama.rope.scaling.attn_factor"] == pytest.approx(1.25)
    with pytest.warns(UserWarning, match=r"an attention factor of 1\.25 and rope_freqs\.weight, which no config can say"):
        load(str(tmp_path / "2" / "model.gguf"))
    keys, _ = again(tmp_path / "2", "constant:tau=0.64", tmp_path / "3")
    assert keys["llama.rope.scaling.attn_factor"] == pytest.approx(1.25**2)


def test_another_rotation_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    lw.export(make("llama"), "yarn:factor=4", to="gguf", out=tmp_path / "1", tokenizer=bpe_tokenizer(), length=LONG)
    keys, tensors = again(tmp_path / "1", "ntk:factor=4", tmp_path / "2")
    assert keys["llama.rope.scaling.type"] == "longrope"
    assert "llama.rope.scaling.factor" not in keys
    assert "rope_factors_long.weight" in tensors


@pytest.mark.parametrize("method", ["none", "constant:tau=0.64"])
def test_a_file_keeps_the_longest_input_that_its_rotation_is_for(method: str, tmp_path: Path) -> None:
    lw.export(make("llama"), "yarn:factor=8", to="gguf", out=tmp_path / "1", tokenizer=bpe_tokenizer())
    assert again(tmp_path / "1", method, tmp_path / "2")[0]["llama.context_length"] == 8 * TRAIN_LENGTH


def test_biases_of_queries_and_keys_stand_as_their_rows(tmp_path: Path) -> None:
    model = rotating("linear", attention_bias=True)
    bias = model.model.layers[0].self_attn.q_proj.bias
    torch.nn.init.normal_(bias)
    lw.export(model, "none", to="gguf", out=tmp_path / "out", tokenizer=bpe_tokenizer())
    order = [head * 8 + pair + half for head in range(4) for pair in range(4) for half in (0, 4)]
    found = contents(tmp_path / "out" / "model.gguf")[1]["blk.0.attn_q.bias"]
    numpy.testing.assert_array_equal(found, bias.detach().numpy()[order])


def gemma(**others: Any) -> Any:
    torch.manual_seed(0)
    return tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(**{**DECODER_SIZES, "head_dim": 8, "sliding_window": 8, **others})).eval()


@pytest.mark.parametrize("layers", [3, 62])
def test_queries_of_gemma_undo_what_llama_cpp_divides_by(layers: int, tmp_path: Path) -> None:
    """The root of the key size; of the model of 62 layers that of the width over the heads."""
    model = gemma(num_hidden_layers=layers, head_dim=16, query_pre_attn_scalar=4)
    assert model.config.hidden_size // model.config.num_attention_heads == 8
    lw.export(model, "none", to="gguf", out=tmp_path / "out", tokenizer=bpe_tokenizer())
    keys, tensors = contents(tmp_path / "out" / "model.gguf")
    wanted = math.sqrt({3: 16, 62: 8}[layers] / 4)
    numpy.testing.assert_allclose(tensors["blk.0.attn_q_norm.weight"] / tensors["blk.0.attn_k_norm.weight"], wanted, rtol=1e-6)
    assert keys["gemma3.attention.sliding_window_pattern"] == 6


def test_layers_without_a_window_come_round(tmp_path: Path) -> None:
    model = gemma(layer_types=["sliding_attention", "full_attention", "sliding_attention"])
    lw.export(model, "none", to="gguf", out=tmp_path / "out", tokenizer=bpe_tokenizer())
    assert contents(tmp_path / "out" / "model.gguf")[0]["gemma3.attention.sliding_window_pattern"] == 2


def test_a_tokenizer_may_know_more_words_than_the_model(tmp_path: Path) -> None:
    own = bpe_tokenizer()
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**{**DECODER_SIZES, "vocab_size": len(own) - 3}))
    lw.export(model, "none", to="gguf", out=tmp_path / "out", tokenizer=own)
    assert len(contents(tmp_path / "out" / "model.gguf")[0]["tokenizer.ggml.tokens"]) == len(own) - 3


def test_heads_have_the_size_that_a_file_says(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = tf.Qwen3ForCausalLM(tf.Qwen3Config(**{**DECODER_SIZES, "head_dim": 24})).eval()
    lw.export(model, "none", to="gguf", out=tmp_path / "out", tokenizer=bpe_tokenizer())
    read, _ = load(str(tmp_path / "out" / "model.gguf"), "float32")
    torch.testing.assert_close(logits(read, tokens(LONG)), logits(model, tokens(LONG)))


T5_SIZES = {"vocab_size": 384, "d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 4}
SCALED = {"full_attention": {"rope_type": "default", "rope_theta": 1e6}}
SCALED["sliding_attention"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (lambda: gemma(hidden_activation="relu"), "gemma3 models do not know relu for gelu"),
        (lambda: gemma(final_logit_softcapping=5.0), "do not know capped logits"),
        (lambda: gemma(use_bidirectional_attention=True), "do not know attention in both directions"),
        (lambda: gemma(rope_parameters=SCALED), "do not know scaled frequencies in layers with a window"),
        (
            lambda: gemma(layer_types=["full_attention", "sliding_attention", "full_attention"]),
            "do not know layers without a window in another order than every n-th",
        ),
        (lambda: tf.T5ForConditionalGeneration(tf.T5Config(**T5_SIZES)), "this T5's config has no decoder_start_token_id"),
        (lambda: rotating("linear", hidden_act="gelu"), "llama models know silu, not gelu"),
        (lambda: tf.T5EncoderModel(make("t5").config), "llama.cpp's T5 has a decoder, and a T5EncoderModel has none"),
    ],
)
def test_what_a_file_cannot_say_is_refused(model: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises(lw.BadInput, match=match):
        lw.export(model(), "none", to="gguf", out=tmp_path / "out", tokenizer=ByT5Tokenizer(), length=LONG)
    assert not (tmp_path / "out").exists()
