"""Models that are given another data type while they are extended, and T5s in float16."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers as tf

import lengthwise as lw
from tests.conftest import DECODER_SIZES, T5_SIZES, logits, make, tokens
from tests.extended import LONG

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}


@pytest.mark.parametrize("method", ["yarn:factor=4", "rerope", "ntk:factor=4,dynamic=true", "log"])
@pytest.mark.parametrize("rounded", [torch.bfloat16, torch.float16, torch.float64])
def test_a_data_type_given_inside_is_as_one_given_before(method: str, rounded: torch.dtype) -> None:
    model, expected, ids = make("llama"), make("llama").to(rounded).float(), tokens(LONG)
    with lw.extend(expected, method):
        extended = logits(expected, ids)
    with lw.extend(model, method):
        logits(model, ids)
        model.to(rounded).float()
        assert torch.equal(logits(model, ids), extended)
    assert torch.equal(model.model.rotary_emb.inv_freq, expected.model.rotary_emb.inv_freq)
    assert torch.equal(logits(model, ids), logits(expected, ids))


def test_frequencies_that_follow_the_length_keep_a_data_type_given_inside() -> None:
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**DECODER_SIZES, rope_parameters=DYNAMIC)).eval()
    before = model.model.rotary_emb.inv_freq
    with lw.extend(model, "log"):
        logits(model, tokens(LONG))
        model.bfloat16()
    assert torch.equal(model.model.rotary_emb.inv_freq, before.bfloat16())


@pytest.mark.parametrize("wide_wo", [False, True])
@pytest.mark.parametrize("method", ["none", "log", "adaptive", "window:size=24", "constant:tau=0.6"])
@pytest.mark.parametrize("length", [16, LONG])
@torch.no_grad()
def test_a_t5_in_float16_gives_what_float32_gives(method: str, length: int, wide_wo: bool) -> None:
    """transformers keeps `wo` in float32 when it loads; `.half()` does not."""
    torch.manual_seed(0)
    model = tf.T5EncoderModel(tf.T5Config(**T5_SIZES)).eval()
    ids, half = tokens(length, batch=2), copy.deepcopy(model).half()
    if wide_wo:
        for block in half.encoder.block:
            block.layer[-1].DenseReluDense.wo.float()
    mask = torch.ones_like(ids)
    mask[0, -5:] = 0
    with lw.extend(model, method), lw.extend(half, method):
        expected, output = (one(ids, attention_mask=mask).last_hidden_state for one in (model, half))
    assert torch.isfinite(output).all()
    assert (output.float() - expected).norm() < 4e-3 * expected.norm()


def test_statistics_of_a_float16_t5_are_close_to_float32s() -> None:
    model, ids = make("t5"), tokens(LONG)
    expected = lw.row_statistics(model, ids)
    rows = lw.row_statistics(model.half(), ids)
    torch.testing.assert_close(rows.p_max.float(), expected.p_max, atol=3e-3, rtol=3e-2)
