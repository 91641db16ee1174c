"""Position methods on loaded models: against forwards written out by hand, against transformers, and with a cache."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods.positions.pose import PoSECollator
from lengthwise.methods.positions.random_positions import RandomPositionsCollator
from lengthwise.models.cache import RollingLayer
from lengthwise.models.patches import suspended
from lengthwise.models.rotary import Rotary
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, make, tokens
from tests.helpers.sweep import crossed

LONG = 3 * TRAIN_LENGTH
ROTARY = ["llama", "qwen2", "qwen3", "mistral", "mistral window", "gemma", "gpt_neox", "phi3", "olmo2", "smollm3"]
DISTANCES = [
    "rerope:window=12",
    "rerope:window=12,leak=4",
    "streaming_llm:sinks=3",
    "streaming_llm:sinks=3,window=10",
    "streaming_llm:sinks=3,window=10,reindex=false",
    "lm_infinite:sinks=3",
]
FREQUENCIES = ["interpolation:factor=4", "ntk:factor=4", "yarn:factor=4", "eabf", "nope"]
MASKS_AND_BIASES = ["window", "window:size=9", "alibi", "nope+alibi"]


def ids(length: int, batch: int = 1, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 384, (batch, length), generator=generator)


def logits(model: Any, tokens: Tensor, method: str = "none", **options: Any) -> Tensor:
    with lw.extend(model, method, **options), torch.inference_mode():
        return model(tokens, use_cache=False).logits.double()  # type: ignore[no-any-return]


def turned(vector: Tensor, angles: Tensor) -> Tensor:
    """One head's vector, its pairs (i, i + d/2) turned by the angles."""
    a, b = vector.chunk(2, -1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


def llama_by_hand(
    model: Any,
    tokens: Tensor,
    distance: Callable[[int, int], float | None],
    bias: Callable[[int, int, int], float] | None = None,
) -> Tensor:
    """A whole Llama in float64, row by row; `distance(i, j)` from query to key, None where it is not seen."""
    model = model.double()
    length, heads, size = tokens.shape[1], 4, 8
    own = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    hidden = model.model.embed_tokens(tokens)[0]
    for layer in model.model.layers:
        normed = layer.input_layernorm(hidden)
        q = layer.self_attn.q_proj(normed).view(length, heads, size)
        k, v = (part(normed).view(length, 2, size) for part in (layer.self_attn.k_proj, layer.self_attn.v_proj))
        mixed = torch.zeros(length, heads, size, dtype=torch.float64)
        for h in range(heads):
            for i in range(length):
                seen = [(j, apart) for j in range(length) if (apart := distance(i, j)) is not None]
                keys, apart = zip(*seen, strict=True)
                at = torch.tensor(apart, dtype=torch.float64)[:, None] * own
                rows = (turned(q[i, h].expand(len(keys), -1), at) * k[list(keys), h // 2]).sum(-1) / math.sqrt(size)
                if bias is not None:
                    rows = rows + torch.tensor([bias(h, i, j) for j in keys], dtype=torch.float64)
                mixed[i, h] = rows.softmax(0) @ v[list(keys), h // 2]
        hidden = hidden + layer.self_attn.o_proj(mixed.reshape(length, -1))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    found = model.lm_head(model.model.norm(hidden))[None]
    model.float()
    return found  # type: ignore[no-any-return]


def causal(rule: Callable[[int, int], float | None]) -> Callable[[int, int], float | None]:
    return lambda i, j: None if j > i else rule(i, j)


def sinks_before_window(i: int, j: int) -> float | None:
    """Three sinks, a window of ten: the distance in a rolling cache of thirteen."""
    if i - j < 10:
        return i - j
    return min(i, 12) - j if j < 3 else None


RULES: dict[str, Callable[[int, int], float | None]] = {
    "none": lambda i, j: i - j,
    "nope": lambda i, j: 0,
    "interpolation:factor=4": lambda i, j: (i - j) / 4,
    "rerope:window=12": lambda i, j: min(i - j, 12),
    "rerope:window=12,leak=4": lambda i, j: i - j if i - j < 12 else 12 + (i - j - 12) / 4,
    "window:size=9": lambda i, j: i - j if i - j < 9 else None,
    "streaming_llm:sinks=3,window=10": sinks_before_window,
    "lm_infinite:sinks=3": lambda i, j: i - j if i - j < TRAIN_LENGTH else (TRAIN_LENGTH if j < 3 else None),
}


@pytest.mark.parametrize("method", RULES)
def test_a_llama_written_out_by_hand_gives_the_same(method: str) -> None:
    model, tokens = make("llama"), ids(TRAIN_LENGTH + 13)
    with torch.inference_mode():
        expected = llama_by_hand(model, tokens, causal(RULES[method]))
    found = logits(model, tokens, method)
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-4)


def test_alibi_without_rotation_is_a_slope_a_head() -> None:
    model, tokens = make("llama"), ids(20)
    slopes = [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    with torch.inference_mode():
        expected = llama_by_hand(model, tokens, causal(lambda i, j: 0), lambda h, i, j: -slopes[h] * (i - j))
    torch.testing.assert_close(logits(model, tokens, "nope+alibi"), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("method", "rope"),
    [
        ("interpolation:factor=4", {"rope_type": "linear", "factor": 4.0}),
        ("yarn:factor=4", {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAIN_LENGTH}),
        ("yarn:factor=16", {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": TRAIN_LENGTH}),
    ],
)
@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral"])
def test_frequencies_give_the_logits_of_transformers_own_rope_types(name: str, method: str, rope: dict[str, Any]) -> None:
    model, tokens = make(name), ids(LONG)
    config = type(model.config)(**{**model.config.to_dict(), "rope_parameters": {"rope_theta": 10000.0, **rope}})
    theirs = type(model)(config).eval()
    theirs.load_state_dict(model.state_dict())
    with torch.inference_mode():
        expected = theirs(tokens, use_cache=False).logits.double()
    torch.testing.assert_close(logits(model, tokens, method), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ROTARY)
def test_distances_that_change_nothing_give_what_every_family_gives(name: str) -> None:
    """The rotation is then ours and not the model's: unrotated keys, the family's own tables and formula."""
    model, tokens = make(name), ids(LONG, batch=2)
    expected = logits(model, tokens)
    found = logits(model, tokens, "rerope:window=12,leak=1", implementation="blockwise")
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "method"), crossed([*ROTARY], [*DISTANCES, *FREQUENCIES, *MASKS_AND_BIASES], every=3, whole={"llama"})
)
def test_prefill_and_cached_generation_agree(name: str, method: str) -> None:
    """A prompt beyond the training length, then token by token, with eviction where the method allows it."""
    model, tokens = make(name), ids(TRAIN_LENGTH + 12)
    with lw.extend(model, f"{method}+log"), torch.inference_mode():
        whole = model(tokens, use_cache=False).logits
        cache, rows = tf.DynamicCache(config=model.config), []
        for part in torch.split(tokens, [TRAIN_LENGTH - 9, 7, *[1] * 14], 1):
            out = model(part, past_key_values=cache, use_cache=True)
            rows.append(out.logits)
    torch.testing.assert_close(torch.cat(rows, 1), whole, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("method", [*DISTANCES, "window:size=9"])
def test_short_inputs_are_bit_for_bit_the_old_model_also_from_a_cache(method: str) -> None:
    model, tokens = make("llama"), ids(6, batch=2)
    mask = torch.ones_like(tokens)
    mask[1, :3] = 0
    options: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    expected = model.generate(tokens, **options)
    with torch.inference_mode():
        plain = model(tokens).logits
    with lw.extend(model, method):
        found = model.generate(tokens, **options)
        with torch.inference_mode():
            assert torch.equal(model(tokens).logits, plain)
    assert torch.equal(torch.stack(found.logits), torch.stack(expected.logits))


@pytest.mark.parametrize("method", [*DISTANCES, "yarn:factor=4", "window:size=9"])
def test_a_left_padded_batch_gives_what_single_inputs_give(method: str) -> None:
    model, length = make("llama"), TRAIN_LENGTH + 9
    long, short = ids(length, seed=1), ids(length - 7, seed=2)
    batch = torch.cat((long, torch.cat((torch.zeros(1, 7, dtype=torch.long), short), 1)))
    mask = torch.ones_like(batch)
    mask[1, :7] = 0
    with lw.extend(model, method), torch.inference_mode():
        together = model(batch, attention_mask=mask, use_cache=False).logits
        torch.testing.assert_close(together[:1], model(long).logits, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(together[1:, 7:], model(short).logits, atol=1e-4, rtol=1e-3)
        tokens = model.generate(batch, attention_mask=mask, max_new_tokens=6, do_sample=False)
        alone = model.generate(short, attention_mask=torch.ones_like(short), max_new_tokens=6, do_sample=False)
    assert tokens[1, length:].tolist() == alone[0, length - 7 :].tolist()


COLLATORS = [PoSECollator, RandomPositionsCollator]


def leaping(collator: Any, length: int, target: int) -> dict[str, Tensor]:
    batch = {"input_ids": ids(length, batch=2), "attention_mask": torch.ones(2, length, dtype=torch.long)}
    return collator(target, seed=1)(batch)  # type: ignore[no-any-return]


def reach(positions: Tensor) -> int:
    return int((positions[:, -1] - positions[:, 0]).amax()) + 1


@pytest.mark.parametrize("collator", COLLATORS)
@pytest.mark.parametrize("length", [TRAIN_LENGTH // 2, TRAIN_LENGTH + 9])
@pytest.mark.parametrize("name", ROTARY)
def test_frequencies_that_follow_the_length_turn_by_the_positions_given(name: str, length: int, collator: Any) -> None:
    """Against the same frequencies put into the model for good, which then rotates itself, by its own position_ids."""
    model, inputs = make(name), leaping(collator, length, LONG)
    far = reach(inputs["position_ids"])
    assert far > TRAIN_LENGTH
    pairs = {
        "ntk:factor=2,dynamic=true": f"ntk:factor={2 * far / TRAIN_LENGTH - 1}",
        "clex:log_scale=false": f"ntk:factor={2 * math.ceil(far / TRAIN_LENGTH) - 1}",
    }
    for moving, fixed in pairs.items():
        found, expected = [], []
        for spec, rows in ((moving, found), (fixed, expected)):
            with lw.extend(model, spec), torch.inference_mode():
                rows.append(model(**inputs, use_cache=False).logits)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("method", ["ntk:factor=2,dynamic=true", "clex:log_scale=false"])
@pytest.mark.parametrize("name", ROTARY)
def test_frequencies_that_follow_the_length_follow_each_row_of_a_batch(name: str, method: str) -> None:
    model, lengths = make(name), (LONG, TRAIN_LENGTH + 9, TRAIN_LENGTH - 2)
    rows = [ids(length, seed=length) for length in lengths]
    together = torch.cat([torch.nn.functional.pad(row, (LONG - row.shape[1], 0)) for row in rows])
    mask = torch.cat([torch.arange(LONG)[None] >= LONG - row.shape[1] for row in rows]).long()
    with lw.extend(model, method), torch.inference_mode():
        alone = [model(row, use_cache=False).logits[0] for row in rows]
        places = (mask.cumsum(-1) - 1).clamp_min(0)
        padded = model(together, attention_mask=mask, position_ids=places, use_cache=False).logits
    for single, row, real in zip(alone, padded, mask.bool(), strict=True):
        torch.testing.assert_close(row[real], single, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("collator", COLLATORS)
@pytest.mark.parametrize("length", [9, TRAIN_LENGTH + 9])
@pytest.mark.parametrize("method", DISTANCES)
def test_positions_that_leap_are_refused_where_distances_are_counted_in_tokens(method: str, length: int, collator: Any) -> None:
    model, inputs = make("llama"), leaping(collator, length, LONG)
    words = f"counts distances in tokens, and these position_ids leap, up to {reach(inputs['position_ids'])} positions"
    with lw.extend(model, method), pytest.raises(BadInput, match=words):
        model(**inputs, use_cache=False)


@pytest.mark.parametrize("method", [*DISTANCES, "clex:log_scale=false"])
def test_positions_that_restart_where_a_row_sees_nothing_before_are_no_leap(method: str) -> None:
    """Left padding counted as generation counts it, right padding, and packed sequences."""
    model = make("llama")
    first, second = ids(TRAIN_LENGTH + 4, seed=1), ids(TRAIN_LENGTH + 9, seed=2)
    mask = torch.ones(2, TRAIN_LENGTH + 9, dtype=torch.long)
    mask[0, :5] = 0
    with lw.extend(model, method), torch.inference_mode():
        apart = [model(one, use_cache=False).logits for one in (first, second)]
        places = torch.cat([torch.arange(one.shape[1]) for one in (first, second)])[None]
        packed = model(torch.cat((first, second), 1), position_ids=places, use_cache=False).logits
        padded = torch.cat((torch.cat((torch.zeros(1, 5, dtype=torch.long), first), 1), second))
        for shown in (mask, mask.flip(-1)):
            given = padded if shown is mask else torch.cat((padded[:1].roll(-5, 1), second))
            for empty in (0, 1):
                places = (shown.cumsum(-1) - 1).masked_fill(shown == 0, empty)
                together = model(given, attention_mask=shown, position_ids=places, use_cache=False).logits
                torch.testing.assert_close(together[0][shown[0].bool()], apart[0][0], atol=1e-4, rtol=1e-3)
                torch.testing.assert_close(together[1], apart[1][0], atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(packed, torch.cat(apart, 1), atol=1e-4, rtol=1e-3)


def test_a_cache_keeps_no_positions_that_leap() -> None:
    model, inputs = make("llama"), leaping(PoSECollator, TRAIN_LENGTH + 9, LONG)
    with lw.extend(model, "ntk:factor=2,dynamic=true"), pytest.raises(BadInput, match="a cache keeps no positions"):
        model(**inputs, past_key_values=tf.DynamicCache())
    with lw.extend(model, "ntk:factor=2"), torch.inference_mode():
        expected = model(**inputs, use_cache=False).logits
        # A model that rotates itself may keep them
        found = model(**inputs, past_key_values=tf.DynamicCache()).logits
    torch.testing.assert_close(found, expected)


def test_a_rolling_cache_stays_as_small_as_its_window() -> None:
    model = make("llama")
    with lw.extend(model, "streaming_llm:sinks=3,window=10"), torch.inference_mode():
        cache = tf.DynamicCache()
        out = model.generate(
            ids(20), past_key_values=cache, max_new_tokens=60, min_new_tokens=60, do_sample=False, return_dict_in_generate=True
        )
        assert all(isinstance(layer, RollingLayer) for layer in cache.layers)
        assert {layer.keys.shape[-2] for layer in cache.layers} == {12}
        assert cache.get_seq_length() == 79
        # Each token is the likeliest after one forward over all before it
        rows = model(out.sequences[:, :-1], use_cache=False).logits[0, 19:]
        rows[:, model.generation_config.eos_token_id] = -torch.inf  # held back by min_new_tokens
    assert rows.argmax(-1).tolist() == out.sequences[0, 20:].tolist()


@pytest.mark.parametrize("method", ["streaming_llm", "lm_infinite"])
def test_sinks_are_refused_where_the_models_own_window_has_left_them_behind(method: str) -> None:
    """A window narrower than the method's stays as it is; a wider one must not be outgrown."""
    narrow = tf.MistralForCausalLM(tf.MistralConfig(**DECODER_SIZES, sliding_window=16)).eval()
    assert torch.equal(logits(narrow, ids(20), method), logits(narrow, ids(20)))
    model = make("mistral window")
    logits(model, ids(48), method)
    with pytest.raises(BadInput, match="a window of its own of 48 tokens, which has left them behind at 49"):
        logits(model, ids(49), method)
    with lw.extend(model, method), pytest.raises(BadInput, match="left them behind at 49"):
        model.generate(ids(40), max_new_tokens=20, min_new_tokens=20, do_sample=False)


@pytest.mark.parametrize("method", ["streaming_llm:sinks=3,window=10", "lm_infinite:sinks=3"])
def test_layers_of_linear_attention_keep_their_own_cache(method: str) -> None:
    if not hasattr(tf, "Qwen3NextConfig"):
        pytest.skip("this transformers has no Qwen3-Next")
    linear = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
    experts = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 32}
    kinds = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
    torch.manual_seed(0)
    model = tf.Qwen3NextForCausalLM(tf.Qwen3NextConfig(**{**DECODER_SIZES, **linear, **experts, **kinds})).eval()
    with lw.extend(model, method), torch.inference_mode():
        out = model.generate(
            ids(LONG), max_new_tokens=5, min_new_tokens=5, do_sample=False, return_dict_in_generate=True, output_logits=True
        )
        rows = model(out.sequences[:, :-1], use_cache=False).logits[:, LONG - 1 :]
    torch.testing.assert_close(torch.stack(out.logits, 1), rows, atol=1e-4, rtol=1e-3)


def test_a_cache_filled_under_another_method_is_refused() -> None:
    model, tokens = make("llama"), ids(12)
    cache = tf.DynamicCache()
    model(tokens, past_key_values=cache)
    for method in ("rerope:window=12", "yarn:factor=4"):
        with lw.extend(model, method), pytest.raises(BadInput, match="this cache was filled without"):
            model(tokens[:, :1], past_key_values=cache)
    cache = tf.DynamicCache()
    with lw.extend(model, "yarn:factor=4"):
        model(tokens, past_key_values=cache)
    for method in ("yarn:factor=8", "yarn:factor=4+cosscale"):
        with lw.extend(model, method, force=True), pytest.raises(BadInput, match="this cache was filled without"):
            model(tokens[:, :1], past_key_values=cache)
    with lw.extend(model, "yarn:factor=4"):
        model(tokens[:, :1], past_key_values=cache)


@pytest.mark.parametrize(
    "filler", ["rerope:window=12", "yarn:factor=4", "streaming_llm:window=12", "nope", "cosscale", "yarn:factor=4+cosscale"]
)
@pytest.mark.parametrize("static", [False, True])
def test_a_cache_with_moved_keys_does_not_go_on_without_them(filler: str, static: bool) -> None:
    model, tokens = make("llama"), ids(12)
    cache = tf.StaticCache(config=model.config, max_cache_len=TRAIN_LENGTH) if static else tf.DynamicCache()
    with lw.extend(model, filler, force=True), torch.inference_mode():
        model(tokens, past_key_values=cache)
    for method in ("log", "window:size=9", "alibi", "none"):
        with lw.extend(model, method), pytest.raises(BadInput, match=r"this cache was filled with [A-Z].*; begin one inside"):
            model(tokens[:, :1], past_key_values=cache)
    with lw.extend(model, filler, force=True), torch.inference_mode():
        model(tokens[:, :1], past_key_values=cache)


def test_a_cache_with_the_models_own_keys_goes_on_under_any_temperature() -> None:
    model, tokens, cache = make("llama"), ids(12), tf.DynamicCache()
    with torch.inference_mode():
        model(tokens, past_key_values=cache)
        for method in ("log", "constant:tau=0.5", "window:size=9", "none"):
            with lw.extend(model, method):
                model(tokens[:, :1], past_key_values=cache)
    with lw.extend(model, "rerope:window=12"), pytest.raises(BadInput, match="this cache was filled without ReRoPE"):
        model(tokens[:, :1], past_key_values=cache)


@pytest.mark.parametrize(("outer", "inner"), [("rerope:window=12", "log"), ("log", "rerope:window=12")])
def test_nested_methods_share_a_cache_as_those_of_one_spec_do(outer: str, inner: str) -> None:
    model, tokens, cache = make("llama"), ids(LONG), tf.DynamicCache()
    expected = logits(model, tokens, "rerope:window=12+log")
    with lw.extend(model, outer), torch.inference_mode(), lw.extend(model, inner):
        found = [model(part, past_key_values=cache).logits for part in torch.split(tokens, [LONG - 2, 1, 1], 1)]
    torch.testing.assert_close(torch.cat(found, 1).double(), expected, atol=1e-4, rtol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("method", ["rerope:window=12", "yarn:factor=2", "streaming_llm:window=12"])
def test_a_cache_takes_no_keys_of_the_plain_model_after_its_method(method: str) -> None:
    model, cache = make("llama"), tf.DynamicCache()
    ids = tokens(6)
    with lw.extend(model, method):
        model(ids, past_key_values=cache)
    copied = copy.deepcopy(cache)
    for one in (cache, copied):
        with pytest.raises(
            BadInput, match=r"this cache was filled with .*, which is no longer in force; go on inside `extend`"
        ):
            model(ids[:, :1], past_key_values=one)
    with lw.extend(model, method):
        model(ids[:, :1], past_key_values=copied)
        with suspended(model), pytest.raises(BadInput, match="no longer in force"):
            model(ids[:, :1], past_key_values=copied)
        expected = model(torch.cat((ids, ids[:, :2]), 1)).logits[:, -1]
        torch.testing.assert_close(model(ids[:, 1:2], past_key_values=copied).logits[:, -1], expected, atol=1e-5, rtol=1e-4)
    # The copy went on by itself
    assert (cache.get_seq_length(), copied.get_seq_length()) == (6, 8)


def test_a_temperature_may_be_added_to_the_method_of_a_filled_cache() -> None:
    model, tokens, cache = make("llama"), ids(12), tf.DynamicCache()
    with lw.extend(model, "rerope:window=12"), torch.inference_mode():
        model(tokens, past_key_values=cache)
        with lw.extend(model, "log"):
            found = model(tokens[:, :1], past_key_values=cache).logits[:, -1]
    with lw.extend(model, "rerope:window=12+log"), torch.inference_mode():
        expected = model(torch.cat((tokens, tokens[:, :1]), 1)).logits[:, -1]
    # The first twelve were read without the temperature, which 12 keys of 32 do not ask for
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_rolling_cache_that_was_emptied_begins_again_but_rolls_on() -> None:
    model, tokens, cache = make("llama"), ids(50), tf.DynamicCache()
    with lw.extend(model, "streaming_llm:sinks=3,window=10"), torch.inference_mode():
        first = model(tokens, past_key_values=cache).logits
        cache.reset()
        assert cache.get_seq_length() == 0
        assert torch.equal(model(tokens, past_key_values=cache).logits, first)
        cache.reset()
        with pytest.raises(BadInput, match="made to drop keys by StreamingLLM"):
            model(tokens, attention_mask=(torch.arange(50) > 3)[None].long(), past_key_values=cache)
    with lw.extend(model, "log"), pytest.raises(BadInput, match="made to drop keys by StreamingLLM"):
        model(tokens, past_key_values=cache)


@pytest.mark.parametrize("method", [*DISTANCES, *FREQUENCIES, *MASKS_AND_BIASES])
def test_a_model_is_restored_bit_for_bit(method: str) -> None:
    model, tokens = make("llama"), ids(LONG)
    rotary = model.model.rotary_emb
    before, buffers, attributes = model(tokens).logits, dict(rotary._buffers), set(rotary.__dict__)
    changed = logits(model, tokens, method)
    assert not torch.allclose(changed, before.double(), atol=1e-3)
    assert torch.equal(model(tokens).logits, before)
    assert set(rotary.__dict__) == attributes
    assert all(rotary._buffers[key] is value for key, value in buffers.items())


def test_temperatures_see_the_keys_that_are_left() -> None:
    """A window leaves at most its own size, so that a law of n never wakes up beyond it."""
    model, tokens = make("llama"), ids(LONG)
    assert torch.equal(logits(model, tokens, "window+log"), logits(model, tokens, "window"))
    assert not torch.allclose(logits(model, tokens, "rerope:window=12+log"), logits(model, tokens, "rerope:window=12"))


def test_nesting_adds_a_temperature_to_a_position_method() -> None:
    model, tokens = make("llama"), ids(LONG)
    expected = logits(model, tokens, "rerope:window=12+constant:tau=0.8")
    with lw.extend(model, "rerope:window=12"):
        found = logits(model, tokens, "constant:tau=0.8")
    assert torch.equal(found, expected)
    with (
        lw.extend(model, "yarn:factor=4"),
        pytest.raises(BadInput, match="both fill the rotation slot"),
        lw.extend(model, "nope"),
    ):
        pass


def test_gradients_flow_through_parts() -> None:
    model, tokens = make("llama"), ids(TRAIN_LENGTH + 8)
    with lw.extend(model, "streaming_llm:sinks=3,window=10"):
        model(tokens, labels=tokens, use_cache=False).loss.backward()
    norms = [parameter.grad.norm() for parameter in model.parameters() if parameter.grad is not None]
    assert all(bool(norm.isfinite()) for norm in norms)
    assert len(norms) == len(list(model.parameters()))
    # One step down the gradient lowers the loss
    with torch.no_grad(), lw.extend(model, "streaming_llm:sinks=3,window=10"):
        before = float(model(tokens, labels=tokens, use_cache=False).loss)
        for parameter in model.parameters():
            parameter.sub_(1e-3 * parameter.grad)
        assert float(model(tokens, labels=tokens, use_cache=False).loss) < before


def test_statistics_are_those_of_what_a_row_sees() -> None:
    model, tokens = make("llama"), ids(LONG)
    plain, windowed = (
        lw.row_statistics(model, tokens, method=method) for method in ("none", "streaming_llm:sinks=3,window=10")
    )
    assert bool((windowed.entropy < math.log(13) + 1e-6).all())
    assert bool((windowed.entropy < plain.entropy).all())


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        ("t5", "yarn:factor=4", "changes rotary positions, and T5Stack has none"),
        ("bert", "rerope:window=12", "changes rotary positions, and BertModel has none"),
        ("gemma3", "rerope:window=12", "frequencies of its own for each type of layer"),
        ("t5", "alibi", "fills the bias slot, and so does the learned bias"),
        ("llama", "yarn:factor=4+ntk:factor=4", "both fill the rotation slot"),
        ("llama", "streaming_llm+window", "both fill the visible slot"),
        ("llama", "interpolation:factor=0.5", "factor"),
        ("llama", "streaming_llm:window=100", "window"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name: str, method: str, words: str) -> None:
    with pytest.raises(BadInput, match=words), lw.extend(make(name), method):
        pass


def test_moving_frequencies_are_refused() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**DECODER_SIZES, rope_parameters=rope))
    with pytest.raises(BadInput, match="change with length"), lw.extend(model, "ntk:factor=4"):
        pass


def test_trainable_tables_keep_the_scaling_of_a_yarn_model() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 64}
    config = tf.LlamaConfig(**{**DECODER_SIZES, "max_position_embeddings": 256}, rope_parameters=rope)
    module = LlamaRotaryEmbedding(config)
    assert module.attention_scaling == pytest.approx(1 + 0.1 * math.log(4))
    at, like, own = torch.arange(8)[None], torch.zeros(1, 8, 32), module.inv_freq
    tables = Rotary(module, own).tables(like, at, own.clone().requires_grad_())
    assert all(table.requires_grad for table in tables)
    torch.testing.assert_close(tuple(table.detach() for table in tables), module(like, at))


def test_a_similarity_is_refused_unless_forced_and_then_meets_unrotated_keys() -> None:
    class Cosine:
        """Any similarity: here the dot product, with a scale of its own."""

        def similarity(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
            return query, 2 * key, query.shape[-1] ** -0.5 / 2

        def leaves_alone(self, length: int) -> bool:
            return False

    model, tokens = make("gpt_neox"), ids(LONG)
    with pytest.raises(BadInput, match=r"was not trained with it; train one with it, or pass force=True"):
        lw.extend(model, Cosine()).__enter__()
    with lw.extend(model, Cosine(), force=True), torch.inference_mode():
        found = model(tokens, use_cache=False).logits.double()
    torch.testing.assert_close(found, logits(model, tokens), atol=1e-5, rtol=1e-4)
    with lw.extend(model, "yarn:factor=4"), pytest.raises(BadInput, match="must meet in one spec"):
        lw.extend(model, Cosine(), force=True).__enter__()
    both = ["yarn:factor=4,temperature=false", Cosine()]
    with lw.extend(model, both, force=True), torch.inference_mode():
        found = model(tokens, use_cache=False).logits.double()
    torch.testing.assert_close(found, logits(model, tokens, "yarn:factor=4,temperature=false"), atol=1e-5, rtol=1e-4)
