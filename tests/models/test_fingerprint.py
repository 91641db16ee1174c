"""Which model an alignment belongs to."""

from __future__ import annotations

import copy

import pytest
import transformers

import lengthwise as lw
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import (
    make,
)
from tests.extended import alignment


def test_a_fingerprint_does_not_change_with_the_data_type_or_the_wrapper() -> None:
    from lengthwise.models.fingerprint import model_fingerprint

    model = make("t5")
    expected = model_fingerprint(anatomy_of(model))["weights"]
    encoder = transformers.T5EncoderModel(model.config).eval()
    encoder.load_state_dict(model.state_dict(), strict=False)
    assert model_fingerprint(anatomy_of(encoder))["weights"] == expected
    assert model_fingerprint(anatomy_of(copy.deepcopy(model).bfloat16()))["weights"] == expected


def test_an_alignment_fits_its_model_in_every_data_type() -> None:
    from dataclasses import replace

    from lengthwise.models.fingerprint import model_fingerprint

    model, other = make("llama", seed=0), make("llama", seed=1)
    whole, half = (copy.deepcopy(model) for _ in range(2))
    half.half()
    assert model_fingerprint(anatomy_of(half))["weights"] != model_fingerprint(anatomy_of(whole))["weights"]
    for made, used in ((whole, half), (half, whole), (whole, copy.deepcopy(model).bfloat16())):
        table = replace(alignment(model), model=model_fingerprint(anatomy_of(made)))
        with lw.extend(used, table):
            pass
        with pytest.raises(lw.BadInput, match="made for"), lw.extend(other, table):
            pass


def test_offloaded_weights_are_refused_before_the_first_forward() -> None:
    model = make("llama")
    model.model.layers[1].self_attn.to("meta")
    with pytest.raises(lw.BadInput, match=r"^weights are offloaded and cannot be read; load the model without device_map$"):
        lw.calibrate(model, transformers.ByT5Tokenizer(), 64, train_length=32, show_progress=False)
