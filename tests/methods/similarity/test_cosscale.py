from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods.similarity.cosscale import CosScale, peak
from tests.conftest import make, tokens


def test_logits_are_the_scale_times_the_cosine() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 5, 16) * 7, torch.randn(2, 1, 9, 16) / 50
    q, k, scale = CosScale(40.0).similarity(query, key)
    logits = scale * q @ k.transpose(-1, -2)
    for batch, head, i, j in [(0, 0, 0, 0), (1, 2, 4, 8), (0, 1, 3, 2)]:
        a, b = query[batch, head, i].tolist(), key[batch, 0, j].tolist()
        dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
        expected = 40 * dot / math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))
        assert float(logits[batch, head, i, j]) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert float(logits.abs().max()) <= 40 * (1 + 1e-6)


def test_a_key_of_zeros_is_no_nan() -> None:
    q, k, _ = CosScale().similarity(torch.ones(1, 1, 1, 4), torch.zeros(1, 1, 2, 4))
    assert bool((q @ k.transpose(-1, -2) == 0).all())


@pytest.mark.parametrize("scale", [0.5, 8, 16, 64, 128, 256, 4096])
@pytest.mark.parametrize("key_size", [4, 16, 128])
def test_the_peak_is_where_the_density_of_theorem_3_4_is_largest(scale: float, key_size: int) -> None:
    eta = np.linspace(-1, 1, 2_000_001)[1:-1]
    density = scale * eta + (key_size - 3) / 2 * np.log1p(-(eta**2))
    assert peak(scale, key_size) == pytest.approx(float(eta[density.argmax()]), abs=2e-6)


def test_the_peak_is_the_theorems_formula_and_moves_to_one() -> None:
    scales = (8, 16, 32, 64, 96, 128, 256)
    found = [peak(scale, 128) for scale in scales]
    assert found == pytest.approx([(-(128 - 3) + math.sqrt((128 - 3) ** 2 + 4 * s**2)) / (2 * s) for s in scales])
    assert found == sorted(found)
    assert found[5] == pytest.approx(0.62456, abs=5e-6)  # sqrt(15625 + 65536) = 284.8877; (284.8877 - 125) / 256
    assert peak(1e6, 128) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_that_compares_nothing_is_refused(scale: float) -> None:
    for make_it in (CosScale, lambda value: peak(value, 128)):
        with pytest.raises(BadInput, match="cosscale needs scale > 0"):
            make_it(scale)


def test_a_forced_cosscale_equals_a_llama_whose_queries_and_keys_are_normalised_by_hand() -> None:
    """Normalised before the rotation, which keeps lengths: so it may be done to the projections' outputs."""
    model, ids = make("llama"), tokens(70)
    with torch.inference_mode(), lw.extend(model, "cosscale:scale=12", force=True):
        found = model(ids, use_cache=False).logits
    hooks = []
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj"):

            def unit(_: object, __: object, out: torch.Tensor) -> torch.Tensor:
                heads = out.unflatten(-1, (-1, 8))
                return (heads / heads.square().sum(-1, keepdim=True).sqrt()).flatten(-2)

            hooks.append(getattr(layer.self_attn, name).register_forward_hook(unit))
        layer.self_attn.scaling = 12.0
    with torch.inference_mode():
        expected = model(ids, use_cache=False).logits
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
