"""One forward against transformers' own modules, called by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lengthwise as lw
from lengthwise.analysis.at_length import at_length
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import make, tokens


def first_layer_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:  # [batch, heads, queries, keys], float64
    """What T5's first layer hands to its softmax, from its own projections and its own dense bias."""
    block = model.encoder.block[0].layer[0]
    attention = block.SelfAttention
    with torch.no_grad():
        hidden = block.layer_norm(model.encoder.embed_tokens(ids))
        query, key = (
            project(hidden).unflatten(-1, (attention.n_heads, -1)).transpose(1, 2) for project in (attention.q, attention.k)
        )
        return (query @ key.transpose(-1, -2) + attention.compute_bias(ids.shape[1], ids.shape[1])).double()


def test_the_first_layers_logits_are_those_of_the_model() -> None:
    model, ids = make("t5"), tokens(60, batch=2)
    found = at_length(model, anatomy_of(model), ids)
    logits = first_layer_logits(model, ids)
    vectors = logits.sort(-1, descending=True).values.mean((0, 2))  # [heads, keys]
    vector = vectors.mean(0)
    assert (found.length, found.sequences, found.keys) == (60, 2, 60)
    assert found.ranks == list(range(60))
    assert found.logits == pytest.approx(vector.tolist(), abs=1e-4)
    for head, own in enumerate(found.head_logits):
        assert own == pytest.approx(vectors[head].tolist(), abs=1e-4)
    assert found.head_mean == pytest.approx(vectors.mean(1).tolist(), abs=1e-4)
    assert found.head_sigma == pytest.approx(((vectors - vectors.mean(1, keepdim=True)) ** 2).mean(1).sqrt().tolist(), abs=1e-4)
    assert found.sigma == pytest.approx(float(((vector - vector.mean()) ** 2).mean().sqrt()), abs=1e-4)
    assert (found.top, found.logit_mean) == pytest.approx((float(vector[0]), float(vector.mean())), abs=1e-4)
    assert found.top_p == pytest.approx(float(vector.softmax(0)[0]), abs=1e-5)
    assert found.l_max[0] == pytest.approx(logits.amax(-1).mean((0, 2)).tolist(), abs=1e-4)
    assert found.p_max[0] == pytest.approx(logits.softmax(-1).amax(-1).mean((0, 2)).tolist(), abs=1e-4)


def test_statistics_of_all_layers_are_those_of_row_statistics() -> None:
    model, ids = make("llama"), tokens(50)
    found, expected = at_length(model, anatomy_of(model), ids), lw.row_statistics(model, ids, least_share=0.5)
    for statistic in ("p_max", "entropy", "l_max"):
        own = getattr(expected, statistic)
        torch.testing.assert_close(torch.tensor(getattr(found, statistic)), own)
        assert found.mean(statistic) == pytest.approx(float(own.double().mean()), rel=1e-6)


def test_weights_that_are_not_numbers_are_named() -> None:
    model = make("t5")
    model.encoder.block[1].layer[0].SelfAttention.k.weight.data[0, 0] = float("nan")
    with pytest.raises(lw.BadInput, match=r"NaN or infinity: block\.1\.layer\.0\.SelfAttention\.k"):
        at_length(model, anatomy_of(model), tokens(20))
