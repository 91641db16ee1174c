"""How a layer rotates is seen on a few tokens: some layers only, a part of a key, or more than a rotation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor, nn

import lengthwise as lw
from lengthwise.errors import BadInput
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, make
from tests.positions import UNCHANGED

LAYERS = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
HEADS = {"num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8}
EXPERTS = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1}
DEEPSEEK = {**HEADS, **EXPERTS, "v_head_dim": 8, "first_k_dense_replace": 1, "topk_group": 1}
FAMILIES: dict[str, dict[str, Any]] = {
    "cohere2": LAYERS,
    "exaone4": LAYERS,
    "olmo3": LAYERS,
    "phi": {"rope_parameters": ROPE, "num_key_value_heads": 4},
    "stablelm": {"rope_parameters": ROPE},
    "persimmon": {"rope_parameters": ROPE},
    "deepseek_v3": DEEPSEEK,
}
UNROTATED = ["streaming_llm", "lm_infinite", "ntk:factor=4,dynamic=true", "clex:log_scale=false", "rerope:window=32"]


def family(name: str, **sizes: Any) -> Any:
    """A tiny model whose weights are large enough for attention to be sharp, and whose norms are not all ones."""
    if name not in tf.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {name}")
    own = {key: value for key, value in DECODER_SIZES.items() if key != "head_dim" or name not in ("deepseek_v3", "phi")}
    torch.manual_seed(0)
    model = tf.AutoModelForCausalLM.from_config(tf.AutoConfig.for_model(name, **{**own, **FAMILIES.get(name, {}), **sizes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() > 1 else 0.1))
    return model.eval()


def tokens(length: int) -> Tensor:
    return torch.randint(3, 384, (1, length), generator=torch.Generator().manual_seed(0))


def logits(model: Any, ids: Tensor) -> Tensor:
    with torch.inference_mode():
        return model(ids, use_cache=False).logits  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FAMILIES)
def test_layers_that_rotate_a_part_or_nothing_are_rotated_as_they_are(name: str) -> None:
    model, short, long = family(name), tokens(TRAIN_LENGTH - 8), tokens(2 * TRAIN_LENGTH)
    before, expected = logits(model, short), logits(model, long)
    for method in UNROTATED:
        with lw.extend(model, method):
            torch.testing.assert_close(logits(model, short), before, atol=1e-5, rtol=1e-4)
    for method in UNCHANGED:
        with lw.extend(model, method, implementation="reference"):
            torch.testing.assert_close(logits(model, long), expected, atol=2e-5, rtol=1e-4)
    with lw.extend(model, "rerope:window=12"):
        assert not torch.allclose(logits(model, long), expected, atol=1e-3)
    assert torch.equal(logits(model, long), expected)


@pytest.mark.parametrize("method", UNROTATED)
def test_a_family_that_does_more_than_rotate_is_refused(method: str) -> None:
    model, ids = family("hunyuan_v1_dense"), tokens(TRAIN_LENGTH - 8)
    before, attributes = logits(model, ids), set(model.model.rotary_emb.__dict__)
    with pytest.raises(lw.BadInput, match="HunYuanDenseV1Attention does more than rotate"), lw.extend(model, method):
        pass
    assert torch.equal(logits(model, ids), before)
    assert set(model.model.rotary_emb.__dict__) == attributes
    # Frequencies that stay go in the place of the model's own: nothing is assumed then
    with lw.extend(model, "yarn:factor=1"):
        torch.testing.assert_close(logits(model, ids), before)


@pytest.mark.parametrize("method", ["yarn:factor=4", "streaming_llm", "rerope:window=12"])
def test_a_family_that_computes_its_frequencies_anew_is_refused(method: str) -> None:
    model = family("phimoe", num_local_experts=2)
    told = "PhimoeRotaryEmbedding computes its frequencies anew in every forward, and takes no others"
    with pytest.raises(lw.BadInput, match=told), lw.extend(model, method):
        pass


@torch.inference_mode()
def test_a_cache_that_keeps_what_keys_are_made_of_keeps_all_of_it() -> None:
    model, ids, cache = family("deepseek_v3"), tokens(2 * TRAIN_LENGTH), tf.DynamicCache()
    with lw.extend(model, "streaming_llm:sinks=3,window=12"):
        expected = logits(model, ids)
        parts = [
            model(part, past_key_values=cache).logits for part in torch.split(ids, [40, *[1] * (2 * TRAIN_LENGTH - 40)], 1)
        ]
    torch.testing.assert_close(torch.cat(parts, 1), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_proof_leaves_no_trace(dtype: torch.dtype, wrapped: bool) -> None:
    model = make("llama").to(dtype).train()
    model.model.layers[1].eval()
    model.config.attention_dropout = model.model.layers[0].self_attn.attention_dropout = 0.5
    if wrapped:
        peft = pytest.importorskip("peft")
        model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    before = _state(model)
    with lw.extend(model, "streaming_llm"):
        assert _state(model)[:3] == before[:3]
    assert _state(model) == before


def _state(model: nn.Module) -> tuple[Any, ...]:
    modules = list(model.modules())
    training, random = [module.training for module in modules], torch.random.get_rng_state().tolist()
    grads = [parameter.grad is None for parameter in model.parameters()]
    return training, random, grads, [set(module.__dict__) for module in modules], [len(m._forward_hooks) for m in modules]


def test_only_methods_that_need_unrotated_keys_run_the_model() -> None:
    model, runs = make("llama"), []
    model.model.register_forward_hook(lambda *_: runs.append(1))
    for method in ("log", "yarn:factor=4", "window", "alibi"):
        with lw.extend(model, method):
            assert not runs
    with lw.extend(model, "streaming_llm"):
        assert len(runs) == 2


def test_an_encoder_with_rotary_positions_is_proven_too() -> None:
    if not hasattr(tf, "T5GemmaConfig"):
        pytest.skip("this transformers has no T5Gemma")
    sub = {**DECODER_SIZES, "attn_logit_softcapping": None, "sliding_window": 16}
    torch.manual_seed(0)
    config = tf.T5GemmaConfig(encoder=sub, decoder=sub, vocab_size=384, attn_logit_softcapping=None)
    model, ids = tf.T5GemmaForConditionalGeneration(config).eval(), tokens(2 * TRAIN_LENGTH)

    def read() -> Tensor:
        with torch.inference_mode():
            return model(input_ids=ids, decoder_input_ids=ids[:, :3]).logits  # type: ignore[no-any-return]

    before = read()
    with lw.extend(model, "rerope:window=12,leak=1", implementation="reference"):
        torch.testing.assert_close(read(), before, atol=1e-5, rtol=1e-4)


def test_a_formula_that_takes_queries_without_keys_is_refused_by_name() -> None:
    if not hasattr(tf, "Gemma3nTextConfig"):
        pytest.skip("this transformers has no Gemma 3n")
    small = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 384, "laurel_rank": 4, "num_kv_shared_layers": 0}
    sizes = {**DECODER_SIZES, **LAYERS, **small, "activation_sparsity_pattern": None}
    model = tf.Gemma3nForCausalLM(tf.Gemma3nTextConfig(**sizes)).eval()
    with pytest.raises(BadInput, match="or rotates in its own way, and ReRoPE needs"), lw.extend(model, "rerope:window=12"):
        pass
