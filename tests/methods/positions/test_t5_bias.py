"""T5's bias against transformers' own buckets, and as something to train."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods.positions.t5_bias import T5Bias
from tests.conftest import make, tokens


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 64), (32, 1000)])
def test_buckets_are_those_of_transformers(buckets: int, max_distance: int, bidirectional: bool) -> None:
    bias = T5Bias(3, buckets, max_distance, bidirectional)
    torch.nn.init.normal_(bias.table)
    distance = torch.arange(-2000, 2001)
    expected = T5Attention._relative_position_bucket(distance, bidirectional, buckets, max_distance)
    assert torch.equal(bias.distance_bias(3, 2000), bias.table[expected].T)


def test_edges_of_buckets_are_those_of_float32() -> None:
    distance = torch.arange(-160, 1)
    expected = T5Attention._relative_position_bucket(distance, bidirectional=False, num_buckets=10, max_distance=160)
    assert torch.equal(T5Bias(1, buckets=10, max_distance=160)._bucket(distance), expected)


def test_by_hand() -> None:
    """Eight buckets, four exact: 4 ... 5 share one, from 16 on all the last."""
    bias = T5Bias(1, 8, 16)
    with torch.no_grad():
        bias.table.copy_(torch.arange(8.0)[:, None])
    row = bias.distance_bias(1, 20)[0].tolist()
    back = row[20::-1]
    assert back[:4] == [0, 1, 2, 3]
    assert back[4:6] == [4, 4]
    assert back[16:] == [7] * 5
    assert row[21:] == [0] * 20  # nothing behind a row is seen in a causal model


def test_an_untrained_table_changes_nothing_and_a_trained_one_does(tmp_path: Path) -> None:
    model, ids = make("llama"), tokens(48)
    with torch.inference_mode():
        plain = model(ids).logits
        with lw.extend(model, "t5_bias"):
            torch.testing.assert_close(model(ids).logits, plain, atol=1e-5, rtol=1e-4)
    bias = T5Bias(4)
    for length in (16, 48):  # within the training length and beyond
        bias.table.grad = None
        with lw.extend(model, bias):
            model(ids[:, :length], labels=ids[:, :length], use_cache=False).loss.backward()
        assert bias.table.grad is not None
        assert float(bias.table.grad.abs().max()) > 0
    with torch.no_grad():
        bias.table.copy_(torch.randn(32, 4))
    bias.save(tmp_path / "bias.safetensors")
    with torch.inference_mode():
        with lw.extend(model, bias):
            changed = model(ids).logits
        with lw.extend(model, f"t5_bias:weights={tmp_path / 'bias.safetensors'}"):
            assert torch.equal(model(ids).logits, changed)
    assert not torch.allclose(changed, plain, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"heads": 0}, "heads >= 1"),
        ({"buckets": 7}, "multiple of 2 buckets, not 7"),
        ({"buckets": 30, "bidirectional": True}, "multiple of 4 buckets, not 30"),
        ({"max_distance": 16}, "max_distance > 16"),
        ({"weights": "no/such.safetensors"}, "no table of biases"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        T5Bias(**{"heads": 4, **arguments})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="made for 4 heads, this model has 8; write t5_bias:heads=8"):
        T5Bias(4).distance_bias(8, 3)
