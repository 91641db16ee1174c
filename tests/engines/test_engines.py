"""Exports in the engines themselves, against the model extended by lengthwise: docs/serving.md says what happens in each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

import lengthwise as lw
from lengthwise.common.text import shipped_prose
from lengthwise.methods.temperature.aligned import Calibrated
from lengthwise.models.load import load
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, make
from tests.engines.conftest import tokenizer, verified

pytest.importorskip("ctranslate2", reason="make test-engines")
pytestmark = pytest.mark.filterwarnings("ignore")

LONG = 4 * TRAIN_LENGTH
LENGTHS = {"length": LONG, "train_length": TRAIN_LENGTH}
FREQUENCIES = ("interpolation:factor=4", "ntk:factor=4", "yarn:factor=4", "yarn:factor=4,temperature=false", "eabf")
BOTH = "yarn:factor=4+constant:tau=0.8"
# Engines round: ggml looks GELU up in a table of float16
COARSE = {("gguf", "gemma3"): 1e-3, ("gguf", "flan-t5"): 5e-3}

CASES = [
    *[("gguf", name, spec) for name in ("llama", "qwen2") for spec in (*FREQUENCIES, BOTH, "constant:tau=0.6")],
    *[("gguf", name, spec) for name in ("qwen3", "gemma3", "mistral") for spec in ("yarn:factor=4", "constant:tau=0.6")],
    ("gguf", "llama", "clipped_rope"),
    *[("ctranslate2", name, spec) for name in ("llama", "qwen2", "mistral") for spec in ("ntk:factor=4", "constant:tau=0.6")],
    ("ctranslate2", "llama", "interpolation:factor=4"),
    *[(to, name, "constant:tau=0.6") for to in ("gguf", "ctranslate2", "onnx") for name in ("t5", "flan-t5")],
    ("transformers", "gemma3", BOTH),
    ("transformers", "t5", "constant:tau=0.6"),
]


@pytest.mark.parametrize(("to", "name", "spec"), CASES)
def test_an_engine_computes_what_the_extended_model_does(to: str, name: str, spec: str, tmp_path: Path) -> None:
    same, error, _ = verified(make(name), spec, to, tmp_path / "out", **LENGTHS)
    assert same == 3
    assert error is None or error < COARSE.get((to, name), 2e-5)


REFUSED = {
    ("gguf", "llama", "ntk:dynamic=true"): "llama.cpp does not know frequencies that follow the input",
    ("gguf", "qwen2", "clipped_rope"): "a factor for each pair of qwen2 models",
    ("gguf", "mistral window", "yarn:factor=4"): "no sliding window",
    ("gguf", "olmo2", "yarn:factor=4"): "--to gguf writes llama",
    ("ctranslate2", "llama", "yarn:factor=4"): "CTranslate2 does not know rotations of type yarn",
    ("ctranslate2", "gemma3", "constant:tau=0.6"): "--to ctranslate2 is for",
    ("onnx", "llama", "yarn:factor=4"): "--to onnx writes t5 and mt5 models",
}


@pytest.mark.parametrize(("to", "name", "spec"), REFUSED)
def test_what_an_engine_does_not_know_is_refused(to: str, name: str, spec: str, tmp_path: Path) -> None:
    with pytest.raises(lw.BadInput, match=REFUSED[to, name, spec]):
        lw.export(make(name), spec, to=to, out=tmp_path / "out", tokenizer=tokenizer(), **LENGTHS)
    assert not list(tmp_path.iterdir())


def test_inputs_of_any_length_go_through_one_graph(tmp_path: Path) -> None:
    """The bias is computed in the graph: one traced on 24 tokens reads 700."""
    from lengthwise.calibration.export.onnx_graphs import Sessions

    model = make("t5")
    lw.export(model, "constant:tau=0.6", to="onnx", out=tmp_path / "out", tokenizer=tokenizer(), **LENGTHS)
    sessions = Sessions(tmp_path / "out")
    for length in (2, 33, 700):
        ids = torch.randint(3, 380, (1, length), generator=torch.Generator().manual_seed(length))
        with torch.no_grad(), lw.extend(model, "constant:tau=0.6"):
            expected = model(input_ids=ids, decoder_input_ids=torch.zeros(1, 1, dtype=torch.long)).logits[0, -1]
        told, _ = sessions.answer(ids[0].tolist(), 0, [1], 4)
        torch.testing.assert_close(told, expected, atol=1e-4, rtol=1e-4)


def test_llama_3s_own_rotation_is_kept(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope["original_max_position_embeddings"] = TRAIN_LENGTH
    torch.manual_seed(0)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**{**DECODER_SIZES, "rope_parameters": rope})).eval()
    for spec in ("constant:tau=0.6", "interpolation:factor=2"):
        same, error, _ = verified(model, spec, "gguf", tmp_path / spec[:4], **LENGTHS)
        assert same == 3
        assert error is not None
        assert error < 2e-5


def quantised(source: Path, out: Path, kind: str) -> None:
    """A GGUF file with its projections quantised."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    for name, entry in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, entry.contents(), entry.types[0], entry.types[-1] if len(entry.types) > 1 else None)
    quantisation = gguf.GGMLQuantizationType[kind]
    for tensor in reader.tensors:
        data: Any = tensor.data
        if "attn_" in tensor.name and data.ndim == 2:
            writer.add_tensor(tensor.name, gguf.quants.quantize(data, quantisation), raw_dtype=quantisation)
        else:
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_1"])
@pytest.mark.parametrize("spec", [BOTH, "by head"])
def test_a_gguf_file_is_rewritten(kind: str, spec: str, tmp_path: Path) -> None:
    """A temperature of all layers becomes a factor of cos and sin; one a head goes into the scales of its blocks."""
    lw.export(make("llama"), "none", to="gguf", out=tmp_path / "plain", tokenizer=tokenizer())
    source = tmp_path / "plain" / "model.gguf"
    if kind != "F32":
        quantised(source, tmp_path / "small.gguf", kind)
        source = tmp_path / "small.gguf"
    model, own_tokenizer = load(str(source), device="cpu")
    method: Any = spec
    if spec == "by head":
        taus = [[0.8, 0.9, 0.7, 0.6], [0.5, 0.6, 0.7, 0.8], [0.9, 0.5, 0.95, 0.6]]
        method = lw.Alignment("pmax", "head", TRAIN_LENGTH, 0.5, (Calibrated(LONG, taus, 0.5, 3),))
    out = tmp_path / "out"
    done = lw.export(model, method, to="gguf", out=out, tokenizer=own_tokenizer, verify=True, length=LONG)
    error = float(done.compared[1].split()[7])
    # Products of quantised weights are taken with activations in 8 bits
    assert error < (2e-5 if kind == "F32" else 0.05)


def test_text_is_cut_into_the_same_tokens(tmp_path: Path) -> None:
    from llama_cpp import Llama

    lw.export(make("llama"), "none", to="gguf", out=tmp_path / "out", tokenizer=tokenizer())
    engine = Llama(str(tmp_path / "out" / "model.gguf"), vocab_only=True, verbose=False)
    for text in (shipped_prose()[:2000], "In 1987, 12345 x 67 = ?\n\n  Twice  as\tmuch, naïve, ¿sí?"):
        assert engine.tokenize(text.encode(), add_bos=False) == tokenizer()(text, add_special_tokens=False).input_ids


def test_the_card_says_what_was_compared(tmp_path: Path) -> None:
    _, _, done = verified(make("llama"), "yarn:factor=4", "gguf", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert all(line in card for line in done.compared)
    assert json.dumps("LlamaForCausalLM") in card
