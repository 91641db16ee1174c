"""LoRA: what is trained, what the model says at first, and that merging keeps what was learnt."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lengthwise.training.lora import LORA_ALPHA, can_quantise, merged, quantised, with_lora
from tests.conftest import logits, make, tokens

pytest.importorskip("peft")


def test_lora_alone_is_trained_and_says_at_first_what_the_model_said() -> None:
    model, ids = make("llama"), tokens(20)
    before = logits(model, ids)
    wrapped = with_lora(model, 4, seed=0)
    assert torch.equal(logits(wrapped, ids), before)
    trained = {name: p for name, p in wrapped.named_parameters() if p.requires_grad}
    # Four of attention and three of the feed-forward in each of three layers, two matrices each
    assert len(trained) == 2 * 7 * 3
    assert all("lora_" in name and min(p.shape) == 4 for name, p in trained.items())


def test_the_seed_alone_decides_what_lora_starts_from() -> None:
    first, same, other = (with_lora(make("llama"), 4, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first if "lora_A" in name)


def test_merged_weights_are_w_plus_16_over_r_times_b_a(tmp_path: Path) -> None:
    model, ids = make("llama"), tokens(20)
    weight = model.model.layers[0].self_attn.q_proj.weight.detach().clone()
    wrapped = with_lora(model, 4, seed=0)
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(3))
    expected, layer = logits(wrapped, ids), wrapped.base_model.model.model.layers[0].self_attn.q_proj
    step = LORA_ALPHA / 4 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    wrapped.save_pretrained(tmp_path)
    # Where training went over 4-bit weights, the adapter is merged into the model as it was
    onto_plain = merged(wrapped, tmp_path, make("llama"))
    torch.testing.assert_close(logits(onto_plain, ids), expected)
    own = merged(wrapped, tmp_path, None)
    torch.testing.assert_close(own.model.layers[0].self_attn.q_proj.weight, weight + step)
    torch.testing.assert_close(logits(own, ids), expected)


def test_without_a_gpu_nothing_is_quantised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not can_quantise()


@pytest.mark.parametrize(("bf16", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_narrow_weights_run_no_code_and_every_layer_keeps_what_it_computed(
    bf16: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the libraries are asked for: without bitsandbytes and a GPU they cannot do it."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr("transformers.BitsAndBytesConfig", dict)
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", lambda name, **options: asked.update(options))
    monkeypatch.setattr("peft.prepare_model_for_kbit_training", lambda model, **options: options)
    assert quantised("m", SimpleNamespace(bf16=bf16, device="cuda:1")) == {"use_gradient_checkpointing": False}
    narrow = asked.pop("quantization_config")
    assert narrow.pop("bnb_4bit_compute_dtype") == dtype
    assert narrow == {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    assert asked == {"device_map": {"": "cuda:1"}, "use_safetensors": True, "trust_remote_code": False}
