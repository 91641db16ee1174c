"""Every causal family of the installed transformers: a method is refused in one line, or does what it says.

Families whose classes cannot be made this small, or cannot run so, are skipped.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import lengthwise as lw
from lengthwise.errors import BadInput, require
from tests.conftest import DECODERS, tokens

TRAINED, LONG, PREFILL = 16, 48, 40
LARGE = 2e7  # parameters
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "intermediate_size", "ffn_dim", "d_ff"), 64),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 2048),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "v_head_dim"), 16),
    **dict.fromkeys(("head_dim", "qk_rope_head_dim", "qk_nope_head_dim"), 8),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "first_k_dense_replace"), 1),
    "vocab_size": 384,
    "num_key_value_heads": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
METHODS = ("none", "log", "yarn:factor=8", "rerope:window=8", "streaming_llm:window=12,sinks=2")


def small(family: str) -> Any:
    try:
        whole = tf.CONFIG_MAPPING[family]()
        text = getattr(whole, "text_config", None) or whole
        config = type(text)(**{name: size for name, size in SIZES.items() if hasattr(text, name)})
        if len(kinds := getattr(config, "layer_types", None) or ()) > 2:
            config.layer_types = kinds[:2]
        with torch.device("meta"):
            parameters = sum(weight.numel() for weight in tf.AutoModelForCausalLM.from_config(config).parameters())
        require(parameters < LARGE, "large")
        torch.manual_seed(0)
        model = tf.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() > 1 else 0))
            model(tokens(LONG), use_cache=False)
            written(model, tokens(LONG))
    except Exception as error:
        if family in DECODERS:
            raise
        pytest.skip(f"cannot be made small, or does not run: {type(error).__name__}")
    return model


def read(model: Any, ids: Tensor) -> Tensor:
    return model(ids, use_cache=False).logits  # type: ignore[no-any-return]


def written(model: Any, ids: Tensor) -> Tensor | None:
    """Logits of the last tokens, one by one with a cache that the model makes; None of a family without one."""
    cache = getattr(model(ids[:, :PREFILL], use_cache=True), "past_key_values", None)
    if not isinstance(cache, tf.Cache):
        return None
    return torch.cat([model(one, past_key_values=cache, use_cache=True).logits for one in ids[:, PREFILL:].split(1, 1)], 1)


@pytest.mark.sweep
@torch.no_grad()
@pytest.mark.parametrize("family", MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
def test_a_method_is_refused_or_does_what_it_says(family: str) -> None:
    model, ids = small(family), tokens(LONG)
    plain, stock = read(model, ids), written(model, ids)
    error = 1e-4 * float(plain.abs().max())
    # Some round a state of their own otherwise, token by token
    goes_on = stock is not None and torch.allclose(stock, plain[:, PREFILL:], atol=error, rtol=0)
    for method in METHODS:
        try:
            with lw.extend(model, method, train_length=TRAINED):
                found, one_by_one = read(model, ids), written(model, ids) if goes_on else None
        except BadInput:
            continue
        changed = float((found - plain).abs().max())
        assert changed <= error if method == "none" else changed > 1e-7, method
        if one_by_one is not None:
            torch.testing.assert_close(one_by_one, found[:, PREFILL:], atol=error, rtol=0)
    assert torch.equal(read(model, ids), plain)
