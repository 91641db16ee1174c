"""Caches under a method: padding that comes between tokens, and caches that are used again."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import pytest
import torch
import transformers as tf
from torch import Tensor
from transformers import DynamicCache, StaticCache

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.models.patches import suspended
from lengthwise.models.rolling_layer import RollingLayer
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, make, tokens
from tests.positions import ids, logits

LONG = 2 * TRAIN_LENGTH
BETWEEN = "padding between tokens, and a cache keeps no positions"
PUSHED = "padding would push out real ones"


def second_turn(model: torch.nn.Module, first: Tensor, second: Tensor, shown: Tensor) -> Tensor:
    """The last logits of a conversation of two turns, positions counted over what is shown."""
    cache = DynamicCache(config=model.config)
    model(first, past_key_values=cache)
    mask = torch.cat([torch.ones_like(first), shown], 1)
    places = (mask.cumsum(-1) - 1).clamp_min(0)[:, first.shape[1] :]
    with torch.no_grad():
        found: Tensor = model(second, attention_mask=mask, position_ids=places, past_key_values=cache).logits[:, -1]
    return found


@pytest.mark.parametrize("length", [LONG, TRAIN_LENGTH // 2])
@pytest.mark.parametrize("method", ["none", "log", "yarn:factor=4"])
def test_a_row_with_padding_between_its_turns_is_as_without_it(method: str, length: int) -> None:
    model, first, second = make("llama"), tokens(length).expand(2, -1), tokens(8, seed=1).expand(2, -1)
    shown = torch.tensor([[1] * 8, [0] * 5 + [1] * 3])
    with lw.extend(model, method):
        both = second_turn(model, first, second, shown)
        alone = second_turn(model, first[1:], second[1:, 5:], shown[1:, 5:])
    torch.testing.assert_close(both[1:], alone, atol=2e-5, rtol=0)


@pytest.mark.parametrize("length", [LONG, TRAIN_LENGTH // 2])
@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("rerope", BETWEEN),
        ("ntk:factor=4,dynamic=true", BETWEEN),
        ("clex", BETWEEN),
        ("streaming_llm", PUSHED),
        ("lm_infinite", PUSHED),
    ],
)
def test_padding_between_turns_is_refused_where_keys_are_placed_by_their_index(method: str, words: str, length: int) -> None:
    model, first, second = make("llama"), tokens(length).expand(2, -1), tokens(8, seed=1).expand(2, -1)
    shown = torch.tensor([[1] * 8, [0] * 5 + [1] * 3])
    with lw.extend(model, method), pytest.raises(BadInput, match=words):
        second_turn(model, first, second, shown)


@pytest.mark.parametrize("method", ["streaming_llm:sinks=3,window=10", "lm_infinite:sinks=3"])
def test_a_cache_whose_masks_add_to_the_logits_keeps_the_keys_that_they_count(method: str) -> None:
    model, text, padding = make("llama"), tokens(LONG), 12
    ids = torch.nn.functional.pad(text, (padding, 0))
    hidden = (torch.arange(LONG + padding) < padding) | torch.ones(LONG + padding, LONG + padding).triu(1).bool()
    mask = torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)[None, None]
    with lw.extend(model, method), torch.no_grad():
        cache = DynamicCache(config=model.config)
        pieces = [(0, padding), (padding, LONG), *((at, at + 1) for at in range(LONG, LONG + padding))]
        said = [model(ids[:, a:b], attention_mask=mask[..., a:b, :b], past_key_values=cache).logits for a, b in pieces]
        torch.testing.assert_close(torch.cat(said[1:], 1), model(text, use_cache=False).logits, atol=1e-4, rtol=1e-4)


def test_padding_between_tokens_is_fine_where_positions_count_it() -> None:
    model, first, second = make("llama"), tokens(LONG), tokens(8, seed=1)
    mask = torch.ones(1, LONG + 8, dtype=torch.long)
    mask[0, LONG : LONG + 5] = 0
    with torch.no_grad(), lw.extend(model, "rerope"):
        cache = DynamicCache(config=model.config)
        model(first, past_key_values=cache)
        found = model(second, attention_mask=mask, past_key_values=cache).logits[:, -1]
        at_once = model(torch.cat([first, second], 1), attention_mask=mask).logits[:, -1]
    torch.testing.assert_close(found, at_once, atol=2e-5, rtol=0)


def test_a_cache_that_was_emptied_is_the_plain_models_again() -> None:
    """A static one: in older transformers a dynamic cache keeps its length when it is reset."""
    model, ids = make("llama"), tokens(LONG)
    cache = StaticCache(config=model.config, max_cache_len=2 * LONG)
    with torch.no_grad():
        before = set(vars(cache))
        with lw.extend(model, "rerope"):
            model(ids, past_key_values=cache)
            assert type(cache) is StaticCache
        with pytest.raises(BadInput, match="no longer in force"):
            model(ids, past_key_values=cache)
        cache.reset()
        torch.testing.assert_close(model(ids, past_key_values=cache).logits, model(ids).logits, atol=2e-5, rtol=0)
        assert set(vars(cache)) == before
        with pytest.raises(BadInput, match="filled without"), lw.extend(model, "rerope"):
            model(ids, past_key_values=cache)


def test_a_rolling_cache_stays_as_small_as_its_window() -> None:
    model = make("llama")
    with lw.extend(model, "streaming_llm:sinks=3,window=10"), torch.inference_mode():
        cache = tf.DynamicCache()
        out = model.generate(
            ids(20), past_key_values=cache, max_new_tokens=90, min_new_tokens=90, do_sample=False, return_dict_in_generate=True
        )
        assert all(isinstance(layer, RollingLayer) for layer in cache.layers)
        assert {layer.stored for layer in cache.layers} == {12}
        assert {layer.keys.shape[-2] for layer in cache.layers} == {3 + 3 + 10}
        assert cache.get_seq_length() == 109
        # Each token is the likeliest after one forward over all before it
        rows = model(out.sequences[:, :-1], use_cache=False).logits[0, 19:]
        rows[:, model.generation_config.eos_token_id] = -torch.inf  # held back by min_new_tokens
    assert rows.argmax(-1).tolist() == out.sequences[0, 20:].tolist()


@torch.no_grad()
def test_a_bias_counts_how_far_the_sinks_are_also_where_a_cache_would_draw_them_near() -> None:
    model, tokens, method = make("llama"), ids(40), "streaming_llm:sinks=3,window=10"
    expected = logits(model, tokens, f"{method}+alibi")[:, 30:]
    with lw.extend(model, method):
        rolls = tf.DynamicCache()
        model(tokens[:, :30], past_key_values=rolls)
        with lw.extend(model, "alibi"):
            cache = tf.DynamicCache()
            found = [model(part, past_key_values=cache).logits for part in torch.split(tokens, [30, *[1] * 10], 1)]
            with pytest.raises(BadInput, match="this cache drops keys, and Alibi counts the distance to each"):
                model(tokens[:, 30:31], past_key_values=rolls)
    torch.testing.assert_close(torch.cat(found[1:], 1).double(), expected, atol=1e-4, rtol=1e-3)


@torch.no_grad()
def test_all_keys_are_kept_of_modules_that_run_several_times_a_forward() -> None:
    if not hasattr(tf, "HrmTextConfig"):
        pytest.skip("this transformers has no such model")
    torch.manual_seed(0)
    text, model = ids(40), tf.AutoModelForCausalLM.from_config(tf.HrmTextConfig(**DECODER_SIZES)).eval()
    with lw.extend(model, "streaming_llm:sinks=3,window=10"):
        cache = tf.DynamicCache(config=model.config)
        found = [model(part, past_key_values=cache).logits for part in torch.split(text, [20, 7, *[1] * 13], 1)]
        expected = model(text, use_cache=False).logits
    torch.testing.assert_close(torch.cat(found, 1), expected, atol=1e-4, rtol=1e-3)


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
            ids(3 * TRAIN_LENGTH),
            max_new_tokens=5,
            min_new_tokens=5,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
        rows = model(out.sequences[:, :-1], use_cache=False).logits[:, 3 * TRAIN_LENGTH - 1 :]
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
        with lw.extend(model, method, force=True), pytest.raises(BadInput, match="this cache was filled with Yarn"):
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
    model, tokens, cache = make("llama"), ids(3 * TRAIN_LENGTH), tf.DynamicCache()
    expected = logits(model, tokens, "rerope:window=12+log")
    with lw.extend(model, outer), torch.inference_mode(), lw.extend(model, inner):
        found = [model(part, past_key_values=cache).logits for part in torch.split(tokens, [3 * TRAIN_LENGTH - 2, 1, 1], 1)]
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


@torch.no_grad()
@pytest.mark.parametrize("method", ["rerope:window=12", "yarn:factor=2", "streaming_llm:window=12"])
def test_a_cache_that_the_model_makes_itself_is_known_as_one_that_is_given(method: str) -> None:
    model, ids = make("llama"), tokens(20)
    with lw.extend(model, method):
        cache = model(ids[:, :18]).past_key_values
        found = [model(ids[:, at : at + 1], past_key_values=cache).logits for at in (18, 19)]
        torch.testing.assert_close(torch.cat(found, 1), model(ids).logits[:, -2:], atol=1e-5, rtol=1e-4)
    with pytest.raises(BadInput, match="which is no longer in force"):
        model(ids[:, :1], past_key_values=cache)
    with lw.extend(model, "ntk:factor=4"), pytest.raises(BadInput, match="this cache was filled with"):
        model(ids[:, :1], past_key_values=cache)


@torch.no_grad()
def test_a_cache_given_by_its_place_is_seen() -> None:
    model, ids, cache = make("llama"), tokens(12), tf.DynamicCache()
    model(ids, past_key_values=cache)
    with lw.extend(model, "rerope:window=12"), pytest.raises(BadInput, match="this cache was filled without ReRoPE"):
        model.model(ids[:, :1], None, None, cache)


@torch.no_grad()
@pytest.mark.parametrize("method", ["yarn:factor=2", "streaming_llm:sinks=2,window=4"])
def test_a_filled_cache_is_pickled_and_goes_on_only_under_its_method(method: str) -> None:
    model, ids, cache = make("llama"), tokens(12), tf.DynamicCache()
    with lw.extend(model, method):
        model(ids, past_key_values=cache)
        read = pickle.loads(pickle.dumps(cache))
        expected = model(ids[:, :1], past_key_values=cache).logits
    with pytest.raises(BadInput, match="which is no longer in force"):
        model(ids[:, :1], past_key_values=read)
    with lw.extend(model, method):
        assert torch.equal(model(ids[:, :1], past_key_values=read).logits, expected)


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


def test_assisted_decoding_goes_back_while_nothing_was_dropped_and_else_is_refused_by_name() -> None:
    model, helper, prompt = make("llama"), make("llama"), ids(10)
    for parameter in helper.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)) * 0.02)
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    with lw.extend(model, "streaming_llm:sinks=3,window=28"):
        expected = model.generate(prompt, **options)
        assert torch.equal(model.generate(prompt, assistant_model=helper, **options), expected)
    refusal = r"^assisted decoding takes keys back, and StreamingLLM.*has dropped some at"
    with lw.extend(model, "streaming_llm:sinks=3,window=10"), pytest.raises(BadInput, match=refusal):
        model.generate(prompt, assistant_model=helper, **options)


@pytest.mark.parametrize("method", ["none", "log", "streaming_llm", "dual_chunk", "rerope"])
def test_chunks_of_a_short_static_cache_are_as_one_forward(method: str) -> None:
    model, text = make("llama"), tokens(12)
    with lw.extend(model, method), torch.no_grad():
        cache = StaticCache(config=model.config, max_cache_len=20)
        parts = [model(text[:, a:b], past_key_values=cache).logits for a, b in ((0, 5), (5, 9), (9, 10), (10, 12))]
        torch.testing.assert_close(torch.cat(parts, 1), model(text, use_cache=False).logits)


MIXED = {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}
WINDOWED = {"mistral": tf.MistralConfig, "qwen2": partial(tf.Qwen2Config, **MIXED)}


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("method", ["none", "log", "streaming_llm", "lm_infinite", "dual_chunk", "rerope", "self_extend"])
@pytest.mark.parametrize("family", WINDOWED)
def test_tokens_of_a_model_with_a_narrow_window_are_as_in_one_forward(family: str, method: str, given: bool) -> None:
    torch.manual_seed(0)
    # Keys of a ring stand in order until it has come round
    model = tf.AutoModelForCausalLM.from_config(WINDOWED[family](**DECODER_SIZES, sliding_window=10)).eval()
    for parameter in model.parameters():
        parameter.data.mul_(4 if parameter.dim() > 1 else 1)
    text = tokens(LONG + 12)
    with lw.extend(model, method), torch.no_grad():
        cache = DynamicCache(config=model.config) if given else None
        cache = model(text[:, :LONG], past_key_values=cache, use_cache=True).past_key_values
        later = [model(text[:, at : at + 1], past_key_values=cache).logits for at in range(LONG, LONG + 12)]
        torch.testing.assert_close(torch.cat(later, 1), model(text, use_cache=False).logits[:, LONG:], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("method", ["none", "rerope", "dual_chunk", "ntk:factor=4,dynamic=true"])
def test_a_row_that_is_padded_on_the_right_is_as_alone(method: str, static: bool) -> None:
    model, text = make("llama"), tokens(12, 2)
    shown = torch.ones_like(text)
    shown[1, -2:] = 0
    # As `generate` makes them
    places = (shown.cumsum(-1) - 1).masked_fill(shown == 0, 1)
    begun = 0 if static else 6
    with lw.extend(model, method), torch.no_grad():
        cache = StaticCache(config=model.config, max_cache_len=20) if static else DynamicCache(config=model.config)
        if begun:
            model(text[:, :begun], past_key_values=cache)
        last = {"attention_mask": shown, "position_ids": places[:, begun:], "past_key_values": cache}
        found = model(text[:, begun:], **last).logits
        torch.testing.assert_close(found[1:, : 10 - begun], model(text[1:, :10], use_cache=False).logits[:, begun:])


def test_a_model_that_sees_keeps_all_keys_of_a_padded_batch() -> None:
    text = tf.Gemma3TextConfig(**DECODER_SIZES, sliding_window=16, layer_types=["sliding_attention", *["full_attention"] * 2])
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sight = tf.SiglipVisionConfig(**sizes, image_size=8, patch_size=4)
    indices = {"image_token_index": 383, "boi_token_index": 381, "eoi_token_index": 382}
    model = tf.Gemma3ForConditionalGeneration(
        tf.Gemma3Config(text_config=text, vision_config=sight, mm_tokens_per_image=4, **indices)
    ).eval()
    prompt = tokens(10, 2).clamp(max=370)
    for padding, kind in ((0, RollingLayer), (3, tf.cache_utils.DynamicLayer)):
        shown = torch.ones_like(prompt)
        shown[1, :padding] = 0
        how = {"max_new_tokens": 16, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        with lw.extend(model, "streaming_llm:window=12,sinks=2"), torch.no_grad():
            said = model.generate(
                input_ids=prompt, attention_mask=shown, return_dict_in_generate=True, output_logits=True, **how
            )
            alone = model(input_ids=said.sequences[1:, padding:], use_cache=False).logits[0, 9 - padding : -1]
        assert [type(layer) for layer in said.past_key_values.layers[1:]] == [kind] * 2
        torch.testing.assert_close(torch.stack([step[1] for step in said.logits]), alone)


@pytest.mark.parametrize("method", ["log", "streaming_llm", "rerope"])
def test_a_draft_that_leaves_early_changes_nothing(method: str) -> None:
    model, text = make("llama"), tokens(12)
    how = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    with lw.extend(model, method), torch.no_grad():
        assert torch.equal(model.generate(text, assistant_early_exit=1, **how), model.generate(text, **how))
    assert model.config.num_hidden_layers == DECODER_SIZES["num_hidden_layers"]
