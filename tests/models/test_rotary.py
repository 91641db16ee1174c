"""The rotary embedding of a model: taken over, or refused."""

from __future__ import annotations

import math

import pytest
import torch
import transformers as tf
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.models.rotary import Rotary, no_rotation
from tests.conftest import (
    DECODER_SIZES,
    make,
)
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


def test_trainable_tables_keep_the_scaling_of_a_yarn_model() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 64}
    config = tf.LlamaConfig(**{**DECODER_SIZES, "max_position_embeddings": 256}, rope_parameters=rope)
    module = LlamaRotaryEmbedding(config)
    assert module.attention_scaling == pytest.approx(1 + 0.1 * math.log(4))
    at, like, own = torch.arange(8)[None], torch.zeros(1, 8, 32), module.inv_freq
    tables = Rotary(module).tables(like, at, own.clone().requires_grad_())
    assert all(table.requires_grad for table in tables)
    torch.testing.assert_close(tuple(table.detach() for table in tables), module(like, at))
