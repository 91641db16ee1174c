"""LongRoPE against transformers' own, and what its file may and may not say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods.base import file_contents_of
from lengthwise.methods.positions.longrope import LongRoPE
from lengthwise.methods.spec import methods_of
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, make
from tests.positions import ids, logits

LONG, SHORT = [1.0, 1.5, 3.0, 5.0], [1.0, 1.1, 1.2, 1.3]
ROPE = {"long_factor": LONG, "short_factor": SHORT, "factor": 4.0, "original_max_position_embeddings": TRAIN_LENGTH}


def written(path: Path, document: Any) -> str:
    (path / "factors.json").write_text(json.dumps(document))
    return str(path / "factors.json")


@pytest.mark.parametrize("extra", [{}, {"attention_factor": 1.25}, {"factor": None}])
@pytest.mark.parametrize("length", [TRAIN_LENGTH, 3 * TRAIN_LENGTH])
def test_logits_are_those_of_transformers_own_rope_type(length: int, extra: dict[str, Any], tmp_path: Path) -> None:
    model, tokens = make("llama"), ids(length)
    rope = {**ROPE, **extra, "rope_type": "longrope", "rope_theta": 10000.0}
    if rope["factor"] is None:
        del rope["factor"]
    config = tf.LlamaConfig(**{**DECODER_SIZES, "max_position_embeddings": 4 * TRAIN_LENGTH}, rope_parameters=rope)
    theirs = tf.LlamaForCausalLM(config).eval()
    theirs.load_state_dict(model.state_dict())
    theirs.config.save_pretrained(tmp_path)
    with torch.inference_mode():
        expected = theirs(tokens, use_cache=False).logits.double()
    found = logits(model, tokens, f"longrope:factors={tmp_path / 'config.json'}")
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_without_short_factors_the_training_length_is_left_alone(tmp_path: Path) -> None:
    spec = f"longrope:factors={written(tmp_path, LONG)},factor=4"
    (method,) = methods_of(spec, {"train_length": TRAIN_LENGTH})
    own = torch.tensor([1.0, 0.1, 0.01, 0.001])
    assert method.leaves_alone(TRAIN_LENGTH)
    assert not method.leaves_alone(TRAIN_LENGTH + 1)
    assert torch.equal(method.frequencies(own, TRAIN_LENGTH), own)
    found = method.frequencies(own, TRAIN_LENGTH + 1).tolist()
    assert found == pytest.approx([theta / factor for theta, factor in zip(own.tolist(), LONG, strict=True)])
    rows = torch.stack([torch.arange(1, TRAIN_LENGTH + 2), torch.arange(1, TRAIN_LENGTH + 2).clamp_max(TRAIN_LENGTH)])[:, None]
    g = 1 + math.log(4) / math.log(TRAIN_LENGTH)
    assert method.inverse_temperature(rows).tolist() == [[[pytest.approx(g)]], [[1.0]]]
    model, tokens = make("llama"), ids(TRAIN_LENGTH)
    with lw.extend(model, spec), torch.inference_mode():
        short = model(tokens, use_cache=False).logits
        assert model.generate(ids(TRAIN_LENGTH - 2), max_new_tokens=6, min_new_tokens=6).shape[1] == TRAIN_LENGTH + 4
    assert torch.equal(short, model(tokens, use_cache=False).logits)


def test_a_factor_that_is_given_goes_before_the_files(tmp_path: Path) -> None:
    path = written(tmp_path, {**ROPE, "attention_factor": 1.5})
    assert LongRoPE.load(path, TRAIN_LENGTH).g == 2.25
    assert LongRoPE.load(path, TRAIN_LENGTH, 2.0).g == pytest.approx(1 + math.log(2) / math.log(TRAIN_LENGTH))


def test_a_run_is_known_by_what_the_file_said(tmp_path: Path) -> None:
    method = LongRoPE.load(written(tmp_path, ROPE), TRAIN_LENGTH)
    assert file_contents_of([method])["longrope"]["long_factor"] == tuple(LONG)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([1.0, 0.0], "its 'long_factor' is .*, not a list of numbers above 0"),
        ({"short_factor": SHORT}, "it has no 'long_factor'"),
        ({"rope_scaling": {"long_factor": "1"}}, "its 'long_factor' is \"1\", not a list"),
        ("text", "it is not a JSON object"),
        ({"long_factor": LONG}, r"does not tell how many times longer inputs get; write longrope:factors=FILE,factor=\.\.\."),
        ({**ROPE, "factor": 0.5}, r"factor >= 1, not 0\.5"),
        ({**ROPE, "original_max_position_embeddings": 4096}, "found for a training length of 4096, and this model's is 32"),
    ],
)
def test_a_file_that_holds_no_factors_is_refused(document: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        LongRoPE.load(written(tmp_path, document), TRAIN_LENGTH)


def test_a_missing_file_and_another_number_of_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no file of factors nowhere"):
        LongRoPE.load("nowhere", TRAIN_LENGTH)
    with pytest.raises(BadInput, match="longrope has factors for 3 pairs, and this model rotates 4"):
        logits(make("llama"), ids(40), f"longrope:factors={written(tmp_path, LONG[:3])},factor=2")
