"""Frequencies written into configs: loaded by plain transformers, against the extended model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

import lengthwise as lw
from lengthwise.calibration.export.plan import carry_out, make_plan, notes
from tests.conftest import DECODER_SIZES, DECODERS, TRAIN_LENGTH, logits, make, tokens
from tests.helpers.sweep import crossed

LONG = 4 * TRAIN_LENGTH
# Each with the rope type that says it
STATIC = {
    "interpolation:factor=4": "linear",
    "ntk:factor=4": "default",
    "yarn:factor=4": "yarn",
    "yarn:factor=4,temperature=false": "yarn",
    "yarn:factor=4,beta_fast=16+constant:tau=0.7": "yarn",
    "eabf:skip=3": "default",
    "clipped_rope": "longrope",
    "ntk:dynamic=true,factor=2": "dynamic",
    "clex:log_scale=false": "longrope",
    "longrope:factors={factors},factor=4": "longrope",
}
FOLLOW = ("ntk:dynamic=true,factor=2", "clex:log_scale=false")
# One frequency alone has no base
SINGLE = {"clipped_rope": "default", "ntk:dynamic=true,factor=2": "longrope"}


def export_and_load(model: Any, spec: Any, folder: Path) -> tuple[Any, Any]:
    plan = make_plan(model, spec, LONG, TRAIN_LENGTH)
    stock = carry_out(model, plan)
    stock.save_pretrained(folder)
    return plan, type(model).from_pretrained(folder).eval()


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


@pytest.mark.parametrize(("name", "spec"), crossed([*DECODERS], [*STATIC], every=5))
def test_plain_transformers_computes_what_the_extended_model_does(name: str, spec: str, tmp_path: Path) -> None:
    model = make(name)
    pairs = 1 if name == "gpt_neox" else 4
    (tmp_path / "factors.json").write_text(json.dumps([1.0, 1.5, 2.0, 3.0][-pairs:]))
    text = spec.format(factors=tmp_path / "factors.json")
    plan, stock = export_and_load(model, text, tmp_path / "out")
    kind = SINGLE.get(spec, STATIC[spec]) if pairs == 1 else STATIC[spec]
    # Phi-3's config takes no other
    assert plan.rope.parameters["rope_type"] == ("longrope" if name == "phi3" and kind != "default" else kind)
    ids = tokens(LONG)
    if name == "mistral window" and spec in FOLLOW:
        assert "those of the window" in notes(plan)[-1]
        return
    with lw.extend(model, text, train_length=TRAIN_LENGTH):
        expected = logits(model, ids)
    assert relative_error(logits(stock, ids), expected) < 2e-5
    if "dynamic" in spec:
        # Also where nothing is stretched
        assert relative_error(logits(stock, ids[:, :20]), logits(model, ids[:, :20])) < 1e-6


def test_what_is_not_rotated_is_sharpened_by_weights(tmp_path: Path) -> None:
    """SmolLM3's fourth layer has no positions, and YaRN's attention factor would pass it over."""
    torch.manual_seed(0)
    model = tf.SmolLM3ForCausalLM(tf.SmolLM3Config(**{**DECODER_SIZES, "num_hidden_layers": 4})).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.q_proj.weight, std=0.5)
    plan, stock = export_and_load(model, "yarn:factor=4", tmp_path)
    assert plan.rope.parameters["attention_factor"] == 1
    assert plan.folds
    with lw.extend(model, "yarn:factor=4"):
        assert relative_error(logits(stock, tokens(LONG)), logits(model, tokens(LONG))) < 2e-5


def test_the_first_lengths_and_bases_are_what_engines_count_from() -> None:
    model = make("llama")
    ropes = {
        spec: make_plan(model, spec, None, None).rope for spec in ("interpolation:factor=4", "ntk:factor=4", "yarn:factor=4")
    }
    longest = [rope.longest for rope in ropes.values() if rope is not None]
    # vLLM multiplies the first by its factor
    assert longest == [TRAIN_LENGTH, LONG, LONG]
    linear, base, yarn = (rope.parameters for rope in ropes.values() if rope is not None)
    assert linear == {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
    assert base["rope_theta"] == pytest.approx(10_000 * 4 ** (8 / 6), rel=1e-6)
    assert yarn["original_max_position_embeddings"] == TRAIN_LENGTH


def test_a_stretched_model_is_stretched_further(tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": TRAIN_LENGTH}
    torch.manual_seed(0)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**{**DECODER_SIZES, "rope_parameters": rope})).eval()
    plan, stock = export_and_load(model, "interpolation:factor=2", tmp_path)
    assert plan.rope.parameters["rope_type"] == "longrope"
    with lw.extend(model, "interpolation:factor=2"):
        assert relative_error(logits(stock, tokens(LONG)), logits(model, tokens(LONG))) < 2e-5


def ministral() -> Any:
    torch.manual_seed(0)
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": TRAIN_LENGTH}
    scales = {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
    model = tf.Ministral3ForCausalLM(tf.Ministral3Config(**{**DECODER_SIZES, "rope_parameters": {**rope, **scales}})).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.q_proj.weight, std=0.5)
    return model


def test_ministral_computes_a_temperature_that_grows(tmp_path: Path) -> None:
    model, method = ministral(), "log"
    plan, stock = export_and_load(model, method, tmp_path)
    assert plan.law is not None
    assert not plan.folds
    # 1 + beta ln(1 + floor(p / 32)) against ln n / ln 32, times the model's own: one beta cannot follow every row
    assert 0.02 < plan.law.error < plan.law.folded_error
    assert f"within {100 * plan.law.error:.2g} %" in notes(plan)[0]
    with lw.extend(model, plan.law):
        expected = logits(model, tokens(LONG))
    assert relative_error(logits(stock, tokens(LONG)), expected) < 2e-5
    with lw.extend(model, method):
        extended = logits(model, tokens(LONG))
    assert relative_error(expected, extended) < 0.5 * relative_error(logits(model, tokens(LONG)), extended)


def test_a_temperature_that_no_beta_gives_is_folded(tmp_path: Path) -> None:
    plan, _ = export_and_load(ministral(), "constant:tau=0.6", tmp_path)
    assert plan.law is None
    assert plan.folds
