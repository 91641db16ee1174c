"""The rotary embedding of a model: taken over, or refused."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
import transformers as tf
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

import lengthwise as lw
from lengthwise.attention import Equation, RowStatistics
from lengthwise.errors import BadInput
from lengthwise.models.rolling_layer import RollingLayer
from lengthwise.models.rotary import HalfTables, Rotary, no_rotation, rotated, turns_halves
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, logits, make, tokens
from tests.extended import LONG


def test_positions_of_several_axes_are_refused_where_a_method_knows_one() -> None:
    """Qwen-VL's rotary embedding is handed time, height and width, which are one and the same in text."""
    module = make("llama").model.rotary_emb
    forward, states = no_rotation(Rotary(module)), torch.zeros(1, LONG, 32)
    flat = torch.arange(LONG)[None]
    cos, sin = forward(states, position_ids=flat)
    assert bool((cos == 1).all())
    assert bool((sin == 0).all())
    picture = flat.expand(3, 1, -1).clone()
    picture[2, 0, 8:24] = 8 + torch.arange(16) % 4
    for handed in ((states, picture), (states,)):
        with pytest.raises(BadInput, match="these positions have several axes, as pictures do"):
            forward(*handed, **({} if len(handed) > 1 else {"position_ids": picture}))


def test_moving_frequencies_are_refused() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**DECODER_SIZES, rope_parameters=rope))
    with pytest.raises(BadInput, match="change with length"), lw.extend(model, "ntk:factor=4"):
        pass


TYPED = ["gemma3", "modernbert"]


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize("method", ["yarn:factor=4", "rerope:window=12", "ms_poe:skip=0", "lm_infinite"])
def test_layers_with_a_window_stay_as_they_are_where_types_of_layers_have_frequencies(name: str, method: str) -> None:
    model, ids = make(name), tokens(LONG)
    handed = []

    class Watch:
        """Keeps what each layer solves."""

        def before(self, layer: int, equation: Equation) -> Equation:
            return equation

        def after(self, layer: int, equation: Equation, rows: RowStatistics) -> None:
            handed.append((len(equation.parts), equation.inverse_temperature, equation.query))

    kinds = model.config.layer_types
    # Layers up to the first of full attention read the same
    same = kinds.index("full_attention")
    for spec in ("none", method):
        with lw.extend(model, spec, observer=Watch(), train_length=TRAIN_LENGTH), torch.inference_mode():
            model(ids)
    plain, changed = handed[: len(kinds)], handed[len(kinds) :]
    for layer, kind in enumerate(kinds):
        if kind == "sliding_attention":
            assert changed[layer][:2] == (1, None)
        if layer < same:
            assert torch.equal(changed[layer][2], plain[layer][2])
    parts, g, query = changed[same]
    assert parts > 1 or g is not None or not torch.allclose(query, plain[same][2], atol=1e-4)


def test_frequencies_of_full_layers_give_the_logits_of_transformers_own_rope_type() -> None:
    model, ids = make("gemma3"), tokens(LONG)
    own = model.config.rope_parameters
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAIN_LENGTH}
    rope = {**own, "full_attention": {**own["full_attention"], **yarn}}
    theirs = tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(**{**model.config.to_dict(), "rope_parameters": rope})).eval()
    theirs.load_state_dict(model.state_dict())
    with lw.extend(model, "yarn:factor=4"):
        torch.testing.assert_close(logits(model, ids), logits(theirs, ids), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("drops", [True, False])
def test_a_cache_rolls_in_full_layers_and_keeps_the_models_window_in_the_others(drops: bool) -> None:
    """Where the cache knows which layers have a window; else it keeps all."""
    model, ids = make("gemma3"), tokens(4 * TRAIN_LENGTH)
    cache = tf.DynamicCache(config=model.config) if drops else tf.DynamicCache()
    with lw.extend(model, "streaming_llm:sinks=3,window=10"), torch.inference_mode():
        whole = model(ids, use_cache=False).logits
        rows = [model(part, past_key_values=cache).logits for part in torch.split(ids, [70, 30, *[1] * 28], 1)]
    torch.testing.assert_close(torch.cat(rows, 1), whole, atol=1e-4, rtol=1e-3)
    kept = [layer.stored if isinstance(layer, RollingLayer) else layer.keys.shape[-2] for layer in cache.layers]
    assert kept == ([47, 12, 47] if drops else [4 * TRAIN_LENGTH] * 3)


def test_a_model_without_a_layer_of_full_attention_is_refused_and_so_is_a_similarity() -> None:
    sliding = tf.Gemma3TextConfig(**DECODER_SIZES, sliding_window=48, layer_types=["sliding_attention"] * 3)
    with pytest.raises(BadInput, match="no layer of full attention; ReRoPE has no use there"):
        lw.extend(tf.Gemma3ForCausalLM(sliding), "rerope").__enter__()
    for method in ("cosscale", "cosscale+yarn:factor=4"):
        with pytest.raises(BadInput, match="frequencies for types of layers; CosScale cannot be used on it"):
            lw.extend(make("gemma3"), method, force=True).__enter__()


def test_trainable_tables_keep_the_scaling_of_a_yarn_model() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 64}
    config = tf.LlamaConfig(**{**DECODER_SIZES, "max_position_embeddings": 256}, rope_parameters=rope)
    module = LlamaRotaryEmbedding(config)
    assert module.attention_scaling == pytest.approx(1 + 0.1 * math.log(4))
    at, like, own = torch.arange(8)[None], torch.zeros(1, 8, 32), module.inv_freq
    tables = Rotary(module).tables(like, at, own.clone().requires_grad_())
    assert all(table.requires_grad for table in tables)
    torch.testing.assert_close(tuple(table.detach() for table in tables), module(like, at))


@pytest.mark.parametrize(
    ("family", "expected"), [("llama", True), ("gemma3", True), ("cohere", False), ("glm", False), ("gpt_oss", False)]
)
def test_halves_are_turned_in_three_steps_only_where_the_family_does_so(family: str, expected: bool) -> None:
    formula = importlib.import_module(f"transformers.models.{family}.modeling_{family}").apply_rotary_pos_emb
    assert turns_halves(formula) is expected


@pytest.mark.parametrize("heads", [1, 2])
def test_halves_turned_by_tables_of_heads_are_those_of_llamas_formula(heads: int) -> None:
    states, angles = torch.randn(2, 4, 5, 8, dtype=torch.float64), torch.randn(2, heads, 5, 4, dtype=torch.float64)
    cos, sin = (torch.cat((half, half), -1) for half in (angles.cos(), angles.sin()))
    shared = states.shape[1] // heads
    by_head = [(cos[:, h // shared], sin[:, h // shared]) for h in range(4)]
    theirs = [apply_rotary_pos_emb(states[:, h, None], states[:, :0], *tables)[0] for h, tables in enumerate(by_head)]
    ours = rotated(nn.Module(), "all of it", states, HalfTables.of((cos, sin)))
    torch.testing.assert_close(ours, torch.cat(theirs, 1))
