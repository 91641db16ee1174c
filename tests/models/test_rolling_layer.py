"""A cache that drops keys says what one forward over the whole text says, however the text arrives."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor

import lengthwise as lw
from lengthwise.models.rolling_layer import AHEAD, RollingLayer
from lengthwise.models.rotary import Rotary, rotation_in_laps
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, make
from tests.positions import ROTARY, ids

SMALL = "streaming_llm:sinks=3,window=10"


def pieces(model: Any, tokens: Tensor, sizes: list[int], cache: Any) -> Tensor:
    return torch.cat([model(piece, past_key_values=cache).logits for piece in torch.split(tokens, sizes, 1)], 1)


@pytest.mark.parametrize(
    "method", [SMALL, "streaming_llm:sinks=0,window=10", "streaming_llm:sinks=3,window=1", "lm_infinite:sinks=3"]
)
@pytest.mark.parametrize(
    "sizes",
    [
        [1] * (TRAIN_LENGTH + 2 * AHEAD),
        [TRAIN_LENGTH, *[1] * AHEAD],
        [2, 5, 4, 2, 1, 1, 30, 70, 1, 3, 100, 1, 1],
        [11, 3, AHEAD + 1, 1],
    ],
    ids=str,
)
def test_pieces_of_a_text_are_read_as_the_whole(method: str, sizes: list[int]) -> None:
    model, tokens = make("llama"), ids(sum(sizes))
    with lw.extend(model, method), torch.no_grad():
        read = pieces(model, tokens, sizes, tf.DynamicCache())
        expected = model(tokens, use_cache=False).logits
    torch.testing.assert_close(read, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ROTARY)
def test_every_family_turns_its_sinks(family: str) -> None:
    model, tokens = make(family), ids(TRAIN_LENGTH + 12)
    method = "streaming_llm:sinks=3" if family == "mistral window" else SMALL
    with lw.extend(model, method, force=True), torch.no_grad():
        read = pieces(model, tokens, [TRAIN_LENGTH - 4, *[1] * 16], tf.DynamicCache(config=model.config))
        expected = model(tokens, use_cache=False).logits
    torch.testing.assert_close(read, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("rope_type", ["default", "yarn"])
def test_one_layer_reads_sinks_and_window_as_the_plain_model_reads_them_alone(rope_type: str) -> None:
    """The tables of YaRN are scaled: what is rotated and then turned on must be scaled once."""
    rope = {"rope_type": rope_type, "factor": 2.0, "original_max_position_embeddings": TRAIN_LENGTH, "rope_theta": 1e4}
    torch.manual_seed(0)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**{**DECODER_SIZES, "num_hidden_layers": 1, "rope_parameters": rope})).eval()
    tokens = ids(90)
    with torch.no_grad():
        alone = model(torch.cat([tokens[:, :3], tokens[:, -10:]], 1)).logits[:, -1]
        with lw.extend(model, SMALL):
            streamed = pieces(model, tokens, [20, *[1] * 70], tf.DynamicCache())[:, -1]
            whole = model(tokens, use_cache=False).logits[:, -1]
    torch.testing.assert_close(streamed, alone, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(whole, alone, atol=1e-5, rtol=1e-4)


def test_a_token_moves_no_keys_but_its_own_and_the_sinks() -> None:
    layer = RollingLayer(
        2, 6, "m", turn=lambda sinks, first, count: sinks[:, :, None] + torch.arange(count).view(-1, 1, 1) + first
    )
    for token in range(20):
        states = torch.full((1, 1, 1, 1), float(token))
        before = layer.keys if token else None
        keys, values = layer.update(states, -states)
    assert layer.keys is before
    sinks, window = keys.flatten().tolist()[:2], keys.flatten().tolist()[2:]
    assert sinks == [12, 13]
    assert sorted(window) == [14, 15, 16, 17, 18, 19]
    assert values.flatten().tolist() == [0, -1, *(-key for key in window)]


def test_beams_share_and_swap_their_sinks() -> None:
    model, tokens = make("llama"), ids(40, batch=2)
    with lw.extend(model, SMALL), torch.no_grad():
        cache = tf.DynamicCache()
        model(tokens[:, :30], past_key_values=cache)
        for token in range(30, 33):
            model(tokens[:, token : token + 1], past_key_values=cache)
        cache.reorder_cache(torch.tensor([1, 1]))
        last = model(tokens[:, 33:34], past_key_values=cache).logits
        swapped = torch.cat([tokens[1:, :33].expand(2, -1), tokens[:, 33:34]], 1)
        torch.testing.assert_close(last, model(swapped, use_cache=False).logits[:, -1:], atol=1e-5, rtol=1e-4)


def test_a_cache_of_inference_mode_goes_on_outside_and_a_copy_by_itself() -> None:
    model, tokens, cache = make("llama"), ids(60), tf.DynamicCache()
    with lw.extend(model, SMALL):
        expected = model(tokens, use_cache=False).logits[:, -1]
        with torch.inference_mode():
            pieces(model, tokens[:, :50], [40, *[1] * 10], cache)
        with torch.no_grad():
            pieces(model, tokens[:, 50:55], [1] * 5, cache)
        other = copy.deepcopy(cache)
        with torch.no_grad():
            model(tokens[:, :1], past_key_values=other)
        last = pieces(model, tokens[:, 55:], [1] * 5, cache)[:, -1]
    torch.testing.assert_close(last, expected, atol=1e-5, rtol=1e-4)


def test_gradients_reach_what_a_cache_has_read() -> None:
    model, tokens = make("llama"), ids(20)
    parameter = model.model.layers[0].self_attn.k_proj.weight
    with lw.extend(model, SMALL):
        pieces(model, tokens, [14, 1, 1, 4], tf.DynamicCache())[:, -1].sum().backward()
        read = parameter.grad.clone()
        model.zero_grad()
        model(tokens, use_cache=False).logits[:, -1].sum().backward()
    torch.testing.assert_close(read, parameter.grad, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "phi3", "gemma3"])
def test_tables_are_the_models_own_in_the_first_lap_and_exact_after_millions(family: str) -> None:
    model = make(family)
    module = model.base_model.rotary_emb
    kind = () if module._buffers.get("inv_freq") is not None else ("full_attention",)
    rotary = Rotary(module, *(kind or (None,)), lap=4096)
    like = torch.zeros(1, 1, 1, dtype=torch.bfloat16)
    own = module(like, torch.arange(4096)[None], *kind)
    ours = rotation_in_laps(rotary)(like, torch.arange(4096)[None], *kind)
    assert all(torch.equal(*pair) for pair in zip(own, ours, strict=True))
    far = 4_000_000 + torch.arange(50)[None]
    cos, _ = rotary.tables(torch.zeros(1), far)
    expected = (far[0, :, None].double() * rotary.trained.double()).cos()
    assert torch.allclose(cos[0, :, : expected.shape[1]].double(), expected, atol=1e-3)
