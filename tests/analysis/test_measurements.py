"""What an analysis measures, against transformers' own modules, loops over single rows and the standard library."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist, correlation
from typing import Any

import pytest
import torch

import lengthwise as lw
from lengthwise.analysis import measurements
from lengthwise.analysis.measurements import (
    at_length,
    dispersal,
    normal_quantiles,
    shown_ranks,
    sight,
    sights,
    sorted_mean,
    straightness,
    top_probability,
)
from lengthwise.attention import DistanceBias, Equation, Visible
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import TRAIN_LENGTH, make, tokens
from tests.helpers.analysed import at

HEADS, SIZE, RADIUS = 3, 4, 2


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


def equation(visible: Visible, batch: int = 2, bias: bool = True) -> Equation:
    made = torch.Generator().manual_seed(7)
    query, key = (torch.randn(batch, HEADS, visible.keys, SIZE, generator=made) for _ in range(2))
    table = torch.randn(HEADS, 2 * RADIUS + 1, generator=made)
    return Equation(query, key, key, visible, scale=0.7, bias=DistanceBias(table) if bias else None)


def looped(of: Equation, sees: Callable[[int, int, int], bool], counts: Callable[[int], bool], width: int) -> list[list[float]]:
    """[heads][width]: every row's logits as single products, sorted, its quantiles added up. `sees(b, i, j)`, `counts(n)`."""
    batch, heads, queries, _ = of.query.shape
    result = []
    for h in range(heads):
        rows = []
        for b in range(batch):
            for i in range(queries):
                logits = []
                for j in (j for j in range(of.visible.keys) if sees(b, i, j)):
                    product = sum(float(a) * float(c) for a, c in zip(of.query[b, h, i], of.key[b, h, j], strict=True))
                    bias = float(of.bias.table[h, max(-RADIUS, min(RADIUS, j - i)) + RADIUS]) if of.bias else 0.0
                    logits.append(0.7 * product + bias)
                if counts(n := len(logits)):
                    logits.sort(reverse=True)
                    rows.append([logits[int((r + 0.5) * n / width)] for r in range(width)])
        result.append([sum(column) / len(rows) for column in zip(*rows, strict=True)])
    return result


@pytest.mark.parametrize("bias", [True, False])
def test_an_encoders_rows_are_sorted_and_averaged_entry_by_entry(bias: bool) -> None:
    of = equation(Visible.build(11, 11), bias=bias)
    expected = looped(of, lambda b, i, j: True, lambda n: True, 11)
    torch.testing.assert_close(sorted_mean(of), torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=1e-5)


def test_blocks_of_rows_add_up_to_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    of = equation(Visible.build(11, 11))
    whole = sorted_mean(of)
    monkeypatch.setattr(measurements, "CPU_BLOCK", 3 * 2 * HEADS * 11)
    torch.testing.assert_close(sorted_mean(of), whole)


def test_a_causal_models_rows_are_stretched_to_the_widest() -> None:
    of = equation(Visible.build(12, 12, causal=True))
    expected = looped(of, lambda b, i, j: j <= i, lambda n: n > 6, 12)
    found = sorted_mean(of, least_share=0.5)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=1e-5)


def test_padding_is_no_row_and_no_key() -> None:
    padding = torch.ones(2, 9, dtype=torch.bool)
    padding[1, 6:] = False
    of = equation(Visible.build(9, 9, padding=padding))
    expected = looped(of, lambda b, i, j: b == 0 or max(i, j) < 6, lambda n: n > 0, 9)
    torch.testing.assert_close(sorted_mean(of), torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=1e-5)


def test_rows_of_a_window_are_as_long_as_the_window() -> None:
    assert sorted_mean(equation(Visible.build(10, 10, causal=True, window=4))).shape == (HEADS, 4)


def test_logits_are_the_same_under_autocast() -> None:
    of = equation(Visible.build(11, 11))
    plain = sorted_mean(of)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(sorted_mean(of), plain, atol=0, rtol=0)


def test_quantiles_are_those_of_a_normal_from_the_largest_down() -> None:
    expected = [NormalDist().inv_cdf(share) for share in (0.9, 0.7, 0.5, 0.3, 0.1)]
    assert normal_quantiles(5).tolist() == pytest.approx(expected, abs=1e-12)


def test_a_gaussian_vector_lies_on_a_straight_line_and_an_exponential_one_does_not() -> None:
    n = 400
    shares = [1 - (r + 0.5) / n for r in range(n)]
    gaussian = [3.0 + 2.0 * NormalDist().inv_cdf(share) for share in shares]
    exponential = [-math.log(1 - share) for share in shares]
    for values in (gaussian, exponential):
        expected = correlation(values, [NormalDist().inv_cdf(share) for share in shares])
        assert straightness(torch.tensor(values, dtype=torch.float64)) == pytest.approx(expected, abs=1e-10)
    assert straightness(torch.tensor(gaussian, dtype=torch.float64)) == pytest.approx(1.0, abs=1e-10)
    assert straightness(torch.tensor(exponential, dtype=torch.float64)) < 0.95


def test_equal_entries_have_no_straightness() -> None:
    assert straightness(torch.full((8,), 0.1)) is None
    assert straightness(torch.tensor([2.0])) is None


def test_the_largest_entry_has_its_share_of_the_softmax() -> None:
    assert top_probability(torch.tensor([math.log(6.0), math.log(3.0), 0.0], dtype=torch.float64)) == pytest.approx(0.6)


@pytest.mark.parametrize("n", [2, 40, 161, 162, 512, 15000])
def test_shown_ranks_keep_both_ends_and_are_few(n: int) -> None:
    ranks = shown_ranks(n)
    assert ranks == sorted(set(ranks))
    assert (ranks[0], ranks[-1]) == (0, n - 1)
    assert len(ranks) <= 161
    assert n > 161 or ranks == list(range(n))


def test_between_the_ends_ranks_are_even_by_quantile() -> None:
    quantiles = normal_quantiles(15000)[shown_ranks(15000)]
    steps = (quantiles[:-1] - quantiles[1:]).tolist()
    even = 2 * float(quantiles[0]) / 160
    middle = [step for step, at in zip(steps, quantiles.tolist(), strict=False) if abs(at) < 2]
    assert max(middle) < 1.1 * even
    assert min(middle) > 0.9 * even


def test_the_head_that_loses_most_comes_first() -> None:
    trained = at(32, p_max=[[0.5, 0.04], [0.3, 0.2]], entropy=[[1.0, 3.0], [2.0, 2.5]])
    longest = at(64, p_max=[[0.3, 0.01], [0.05, 0.25]], entropy=[[1.5, 4.0], [3.0, 2.4]])
    found = dispersal(trained, longest)
    assert [(one.layer, one.head) for one in found] == [(2, 1), (1, 1), (1, 2), (2, 2)]
    # By what is lost and not by its share: head 2 of layer 1 keeps only a quarter
    assert [one.fall for one in found] == pytest.approx([0.25, 0.2, 0.03, -0.05])
    assert (found[0].p_max_train, found[0].p_max_longest) == (0.3, 0.05)
    assert (found[0].entropy_train, found[0].entropy_longest) == (2.0, 3.0)


def test_a_head_without_preference_looks_at_the_mean_distance() -> None:
    flat = DistanceBias(torch.zeros(1, 3, dtype=torch.float64))
    # Distances -2 -1 0 1, and in a causal model -3 -2 -1 0
    assert sight(flat, 4, causal=False).tolist() == [1.0]
    assert sight(flat, 4, causal=True).tolist() == [1.5]


def test_a_bias_weighs_the_distances() -> None:
    # Distances -2 ... 2 with weights 1 1 6 3 3: the last value holds beyond the table
    bias = DistanceBias(torch.tensor([[0.0, math.log(6.0), math.log(3.0)]], dtype=torch.float64))
    assert sight(bias, 5, causal=False).tolist() == pytest.approx([(2 + 1 + 3 * 1 + 3 * 2) / 14])


def test_heads_come_from_near_sighted_to_far_sighted() -> None:
    model = make("t5")
    found = sights(anatomy_of(model), longest=100)
    assert sorted((one.layer, one.head) for one in found) == [(1, head) for head in range(1, 5)]
    assert [one.sight_train for one in found] == sorted(one.sight_train for one in found)
    attention = model.encoder.block[0].layer[0].SelfAttention
    for one in found:
        for n, told in ((TRAIN_LENGTH, one.sight_train), (100, one.sight_longest)):
            with torch.no_grad():
                row = attention.compute_bias(n, n)[0, one.head - 1, n // 2].double()
            weights = [math.exp(value) for value in row.tolist()]
            expected = sum(w * abs(j - n // 2) for j, w in enumerate(weights)) / sum(weights)
            assert told == pytest.approx(expected, rel=1e-5)
        assert one.radius == 128
        with torch.no_grad():
            dense = attention.compute_bias(257, 257)[0, one.head - 1, 128]
        assert one.bias == pytest.approx(dense.tolist())


def test_layers_with_a_bias_of_their_own_are_told_apart() -> None:
    assert {one.layer for one in sights(anatomy_of(make("umt5")), 64)} == {1, 2, 3}


def test_a_rotary_model_has_none() -> None:
    assert sights(anatomy_of(make("llama")), 64) == []
