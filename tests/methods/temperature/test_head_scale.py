"""HeadScale against attention written out head by head, its bound, its gradient, its file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods.spec import methods_of
from lengthwise.methods.temperature.head_scale import HeadScale
from tests.conftest import logits, make, tokens

LENGTH = 40


def with_scales(*scales: float) -> HeadScale:
    """Three layers of four heads, each with a number of its own."""
    method = HeadScale(3, 4, least=0.5)
    with torch.no_grad():
        method.scale.copy_(torch.linspace(*scales, 12).view(3, 4))
    return method


def test_every_head_of_every_layer_has_its_number() -> None:
    g = with_scales(0.0, 2.2).inverse_temperature(torch.tensor([[[1, 64, 4096]], [[2, 3, 4]]]), 1)
    assert g.shape == (2, 4, 1)
    assert g.dtype == torch.float32
    assert g[0, :, 0].tolist() == g[1, :, 0].tolist() == pytest.approx([0.8, 1.0, 1.2, 1.4])
    # Below the least there is the least
    assert with_scales(0.0, 2.2).inverse_temperature(torch.ones(1, 1, 1), 0)[0, :, 0].tolist() == pytest.approx(
        [0.5, 0.5, 0.5, 0.6]
    )


def test_a_llama_whose_queries_are_scaled_by_hand_says_the_same() -> None:
    """In float64: scaling the rows of a head in the query's weights is scaling its logits."""
    method, ids = with_scales(0.6, 1.7), tokens(LENGTH, batch=2)
    model, by_hand = make("llama"), make("llama").double()
    with torch.no_grad():
        for layer, scales in zip(by_hand.model.layers, method.scale.double(), strict=True):
            layer.self_attn.q_proj.weight.view(4, 8, -1).mul_(scales[:, None, None])
    with lw.extend(model, method):
        found = logits(model, ids)
    torch.testing.assert_close(found.double(), logits(by_hand, ids), atol=1e-4, rtol=1e-4)


def test_nothing_changes_before_it_is_trained_and_training_finds_it_nevertheless() -> None:
    model, ids = make("llama"), tokens(LENGTH)
    plain = logits(model, ids)
    (method,) = methods_of("head_scale", {"layers": 3, "heads": 4})
    assert isinstance(method, HeadScale)
    with lw.extend(model, method):
        assert torch.equal(logits(model, ids), plain)
        model(ids, labels=ids).loss.backward()
    gradient = method.scale.grad
    assert gradient is not None
    # The slope of the loss, from both sides
    for layer, head in ((0, 1), (2, 3)):
        ends = []
        for step in (-0.01, 0.01):
            other = HeadScale(3, 4, least=0.5)
            with torch.no_grad():
                other.scale[layer, head] += step
            with lw.extend(model, other), torch.no_grad():
                ends.append(float(model(ids, labels=ids).loss))
        assert float(gradient[layer, head]) == pytest.approx((ends[1] - ends[0]) / 0.02, abs=2e-3)


def test_what_was_learnt_is_read_again(tmp_path: Path) -> None:
    with_scales(1.0, 2.0).save(tmp_path / "scales.safetensors")
    facts = {"layers": 3, "heads": 4}
    (method,) = methods_of(f"head_scale:weights={tmp_path / 'scales.safetensors'}", facts)
    assert isinstance(method, HeadScale)
    assert torch.equal(method.scale, with_scales(1.0, 2.0).scale)
    with pytest.raises(BadInput, match=r"does not hold scales of heads of this size"):
        methods_of(f"head_scale:weights={tmp_path / 'scales.safetensors'}", {**facts, "heads": 8})
    with pytest.raises(BadInput, match=r"made for 3 layers of 4 heads, this model has 3 of 8"):
        HeadScale(3, 4).check_fits(3, 8)


@pytest.mark.parametrize("options", ["start=nan", "start=0.5", "start=inf", "least=0", "least=nan,start=2", "layers=0"])
def test_impossible_numbers_are_refused(options: str) -> None:
    with pytest.raises(BadInput, match="head_scale needs"):
        methods_of(f"head_scale:{options}", {"layers": 3, "heads": 4})
