"""A Llama written as GGUF, loaded like any other model."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from tokenizers import Tokenizer
from tokenizers.models import Unigram

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.gguf_header import merge_as_stored
from lengthwise.models.load import load
from tests.conftest import DECODER_SIZES

gguf = pytest.importorskip("gguf")

NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
VOCABULARY = ["<pad>", "<s>", "</s>", "a", "b", "c", "ab", "abc"]


@pytest.fixture(scope="module")
def llama() -> Any:
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    return tf.LlamaForCausalLM(tf.LlamaConfig(**{**DECODER_SIZES, "vocab_size": len(VOCABULARY)}, rope_parameters=rope)).eval()


@pytest.fixture(scope="module")
def file(llama: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(llama, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def written(llama: Any, path: Path, begins: bool | None = None, rope: dict[str, float] | None = None) -> Path:
    """`begins` says whether texts begin with a token; `rope` are keys of YaRN from 32 to 128 tokens."""
    config, writer = llama.config, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(VOCABULARY))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(VOCABULARY)
    writer.add_token_merges(["a b", "ab c"])
    writer.add_token_types([3, 3, 3, 1, 1, 1, 1, 1])
    writer.add_bos_token_id(1)
    if rope is not None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(32)
        for key, value in rope.items():
            writer.add_float32(f"llama.rope.scaling.{key}", value)
    if begins is not None:
        writer.add_add_bos_token(begins)
    writer.add_eos_token_id(2)
    for key, tensor in llama.state_dict().items():
        writer.add_tensor(*as_stored(key.removesuffix(".weight"), tensor.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_unpacking_weights_is_told_because_it_takes_long(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(str(file))
    assert "unpacking the weights of a GGUF file\n" in capsys.readouterr().err


def test_scores_of_byte_pairs_are_the_order_of_merges(tmp_path: Path) -> None:
    """Unigram takes two pieces of the best scores; byte pairs reach the whole word, whose score is the lowest."""
    pieces = ["<unk>", "<s>", "h", "e", "r", "o", "he", "ro", "her", "hero"]
    scores = [0.0, 0.0, -50.0, -50.0, -50.0, -50.0, -1.0, -2.0, -3.0, -30.0]

    def read(kind: str) -> list[str]:
        writer = gguf.GGUFWriter(tmp_path / f"{kind}.gguf", "gemma3")
        writer.add_tokenizer_model(kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        backend = Tokenizer(Unigram(list(zip(pieces, scores, strict=True)), unk_id=0))
        tokenizer = tf.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", unk_token="<unk>")
        merge_as_stored(tokenizer, tmp_path / f"{kind}.gguf")
        return list(tokenizer.tokenize("hero"))

    assert read("t5") == ["he", "ro"]
    assert read("llama") == ["hero"]


def as_stored(key: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    """GGUF keeps the pairs of a rotation side by side."""
    if key in NAMES:
        return f"{NAMES[key]}.weight", values
    _, _, layer, part = key.split(".", 3)
    heads = {"self_attn.q_proj": 4, "self_attn.k_proj": 2}.get(part)
    if heads:
        rows = values.reshape(heads, 2, -1, values.shape[1])
        values = np.ascontiguousarray(rows.swapaxes(1, 2).reshape(values.shape))
    return f"blk.{layer}.{PARTS[part]}.weight", values


def test_a_gguf_file_is_the_model_it_was_written_from(llama: Any, file: Path) -> None:
    model, tokenizer = load(str(file))
    ids = torch.tensor([[1, 3, 4, 5, 6, 7] * 12])
    with torch.inference_mode():
        torch.testing.assert_close(model(ids).logits, llama(ids).logits)
        with lw.extend(model, "streaming_llm"), lw.extend(llama, "streaming_llm"):
            torch.testing.assert_close(model(ids).logits, llama(ids).logits)
    assert tokenizer("abcab").input_ids == [7, 6]
    assert model_fingerprint(anatomy_of(model))["name"] == str(file)


def test_what_cannot_be_read_is_said_in_one_line(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(file.read_bytes()[:500])
    with pytest.raises(BadInput, match="cannot load"):
        load(str(broken))
    beside = broken.with_name("adapter_config.json")
    beside.write_text("{}")
    with pytest.raises(BadInput, match="holds an adapter of peft"):
        load(str(shutil.copy(file, tmp_path / "whole.gguf")))
    beside.unlink()
    with pytest.raises(BadInput, match=r"no file .*missing\.gguf"):
        load(str(tmp_path / "missing.gguf"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match=r"needs the package gguf; pip install 'lengthwise\[gguf\]'"):
        load(str(file))


def test_it_can_be_saved_as_a_directory(file: Path, tmp_path: Path) -> None:
    model, tokenizer = load(str(file), device="cpu")
    lw.export(model, "yarn:factor=4", to="transformers", out=tmp_path / "long", tokenizer=tokenizer)
    again, _ = load(str(tmp_path / "long"), device="cpu")
    assert again.config.rope_parameters["rope_type"] == "yarn"
    assert all(torch.equal(again.state_dict()[name], weight) for name, weight in model.state_dict().items())


@pytest.mark.parametrize("begins", [None, False, True])
def test_texts_begin_as_the_file_says(begins: bool | None, llama: Any, tmp_path: Path) -> None:
    _, tokenizer = load(str(written(llama, tmp_path / "tiny.gguf", begins)), device="cpu")
    assert tokenizer("abc").input_ids == ([1, 7] if begins else [7])
    assert tokenizer("abc", add_special_tokens=False).input_ids == [7]
    tokenizer.save_pretrained(tmp_path / "saved")
    assert tf.AutoTokenizer.from_pretrained(tmp_path / "saved")("abc").input_ids == tokenizer("abc").input_ids


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [("attn_factor", 1.1, 1.1 * 1.138629), ("yarn_attn_factor", 1.3, 1.3), ("yarn_log_multiplier", 1.0, 1.0)],
)
def test_yarn_has_the_attention_factor_that_the_file_says(
    key: str, value: float, wanted: float, llama: Any, tmp_path: Path
) -> None:
    model, _ = load(str(written(llama, tmp_path / "tiny.gguf", rope={key: value})), device="cpu")
    assert model.model.rotary_emb.attention_scaling == pytest.approx(wanted, rel=1e-6)
