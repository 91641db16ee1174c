"""What is refused for CTranslate2 before anything is converted; the engine itself is asked in tests/engines."""

from __future__ import annotations

from typing import Any

import pytest
import transformers as tf

import lengthwise as lw
from lengthwise.calibration.export.ctranslate2_model import check
from lengthwise.calibration.export.plan import make_plan
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, shared

LONG = 4 * TRAIN_LENGTH
LLAMA_3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_3["original_max_position_embeddings"] = 16


def llama_3() -> Any:
    return tf.LlamaForCausalLM(tf.LlamaConfig(**DECODER_SIZES, rope_parameters=LLAMA_3)).eval()


@pytest.mark.parametrize("spec", ["none", "constant:tau=0.8", "ntk:factor=4"])
def test_a_rotation_of_the_models_own_that_the_converter_loses_is_refused(spec: str) -> None:
    with pytest.raises(
        lw.BadInput, match=r"rotations of type \w+, which .*; the nearest that can be had is --to transformers$"
    ):
        check(make_plan(llama_3(), spec, LONG, TRAIN_LENGTH))


def test_a_method_that_the_engine_does_not_know_is_named_once() -> None:
    with pytest.raises(lw.BadInput, match=r"type yarn, which Yarn needs; the nearest that it computes is ntk:factor=4"):
        check(make_plan(shared("llama"), "yarn:factor=4", LONG, TRAIN_LENGTH))


def test_a_sliding_window_is_refused_where_inputs_are_longer() -> None:
    model = shared("mistral window")
    with pytest.raises(lw.BadInput, match=r"sliding window of 48 tokens otherwise; give a --length up to it, or --to transf"):
        check(make_plan(model, "constant:tau=0.8", LONG, TRAIN_LENGTH))
    check(make_plan(model, "constant:tau=0.8", 48, TRAIN_LENGTH))
