"""What is read off a loaded model: the parts of its keys, its windows, and the stack that its forward really calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as tf

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.models.anatomy import anatomy_of, own_window
from tests.conftest import DECODER_SIZES, NEOX_SIZES, make, tokens


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3"])
def test_a_key_of_deepseek_is_what_is_rotated_and_what_is_not(name: str) -> None:
    if name not in tf.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {name}")
    sizes = {"num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "v_head_dim": 8, "n_group": 1, "topk_group": 1}
    parts = {"qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "head_dim": 4}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    config = tf.AutoConfig.for_model(name, **{**DECODER_SIZES, **sizes, **parts, **experts})
    facts = anatomy_of(tf.AutoModelForCausalLM.from_config(config)).facts
    assert (facts["key_size"], facts["rotary_size"]) == (12, 4)


WINDOWS: dict[str, tuple[dict[str, Any], list[int | None]]] = {
    "mistral": ({"sliding_window": 16}, [16, 16, 16]),
    "qwen2": ({"sliding_window": 16, "use_sliding_window": False}, [None, None, None]),
    "qwen2_moe": ({"sliding_window": 16, "use_sliding_window": False}, [None, None, None]),
    "cohere2": ({"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"] * 2}, [16, None, 16, None]),
    "exaone4": ({"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"] * 2}, [16, None, 16, None]),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_those_of_the_models_own_masks(name: str) -> None:
    if name not in tf.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {name}")
    sizes, windows = WINDOWS[name]
    config = tf.AutoConfig.for_model(name, **{**DECODER_SIZES, **sizes, "num_hidden_layers": len(windows)})
    assert anatomy_of(tf.AutoModelForCausalLM.from_config(config)).windows == windows


@pytest.mark.parametrize("name", ["llama", "t5", "bert"])
def test_models_without_a_window_have_none(name: str) -> None:
    assert set(anatomy_of(make(name)).windows) == {None}


def test_a_window_of_0_is_none() -> None:
    assert own_window(SimpleNamespace(), SimpleNamespace(sliding_window=0)) is None


def test_the_stack_is_the_one_that_the_causal_model_calls() -> None:
    """OPT's calls a decoder inside its base model; Llama 4's names a base model that it does not have."""
    opt = tf.OPTForCausalLM(tf.OPTConfig(**NEOX_SIZES, ffn_dim=48, word_embed_proj_dim=32)).eval()
    assert anatomy_of(opt).stack is opt.model.decoder
    if not hasattr(tf, "Llama4TextConfig"):
        pytest.skip("this transformers has no Llama 4")
    sizes = {**DECODER_SIZES, "num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size_mlp": 48}
    llama = tf.Llama4ForCausalLM(tf.Llama4TextConfig(**sizes, attention_chunk_size=16)).eval()
    assert anatomy_of(llama).stack is llama.model
    for model in (opt, llama):
        ids = tokens(30)
        with torch.no_grad():
            expected = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:], reduction="none")
        torch.testing.assert_close(lw.token_nll(model, ids)[0], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("kind", "expected"), [("llama3", 128), ("longrope", 128), ("yarn", 32), ("default", 128)])
def test_the_training_length_of_a_stretched_rotation_is_that_it_was_trained_on(kind: str, expected: int) -> None:
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": 10000.0}
    own: dict[str, dict[str, Any]] = {
        "llama3": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "longrope": {"factor": 4.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
        "yarn": {"factor": 4.0},
    }
    original = {} if kind == "default" else {"original_max_position_embeddings": 32}
    sizes = {**DECODER_SIZES, "max_position_embeddings": 128}
    config = tf.LlamaConfig(**sizes, rope_parameters={**rope, **own.get(kind, {}), **original})
    assert anatomy_of(tf.LlamaForCausalLM(config)).train_length == expected


def test_layers_whose_keys_differ_in_size_are_refused_in_one_line() -> None:
    if not hasattr(tf, "Gemma4TextConfig"):
        pytest.skip("this transformers has no Gemma 4")
    small = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 384, "num_kv_shared_layers": 0}
    kinds = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "global_head_dim": 16}
    model = tf.Gemma4ForCausalLM(tf.Gemma4TextConfig(**{**DECODER_SIZES, **small, **kinds})).eval()
    with pytest.raises(BadInput, match="the layers of this gemma4_text have keys of different sizes"), lw.extend(model, "log"):
        pass
