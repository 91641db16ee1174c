"""g of rows between calibrated lengths, and what a forward at given sharpness tells."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import transformers

import lengthwise as lw
from lengthwise.attention import Equation, Visible
from lengthwise.calibration.align import AtSharpness, SharpnessByLength
from lengthwise.errors import BadInput


def by_hand(n: float, knots: list[tuple[float, float]]) -> float:
    """Linear in ln n between knots (length, g), held at both ends."""
    if n <= knots[0][0]:
        return 1.0
    for (n0, g0), (n1, g1) in itertools.pairwise(knots):
        if n <= n1:
            return g0 + (g1 - g0) * math.log(n / n0) / math.log(n1 / n0)
    return knots[-1][1]


N = [16, 32, 33, 48, 64, 80, 128, 200]


def test_sharpness_goes_from_one_through_shorter_lengths_to_the_candidate() -> None:
    sharpness = SharpnessByLength(32, 128, ((64, torch.tensor([[1.2]])),))
    rows = sharpness.rows(torch.tensor([[N]]), torch.tensor([[1.5], [3.0]]), layer=1)
    assert rows.shape == (2, 1, 1, len(N))
    for row, candidate in zip(rows[:, 0, 0], (1.5, 3.0), strict=True):
        assert row.tolist() == pytest.approx([by_hand(n, [(32, 1.0), (64, 1.2), (128, candidate)]) for n in N])


def test_sharpness_is_that_of_every_layer_head_and_sequence() -> None:
    fixed = torch.tensor([[1.1, 1.2], [1.3, 1.4], [1.6, 1.7]])
    sharpness = SharpnessByLength(32, 128, ((64, fixed),))
    n = torch.tensor([[N], [[x + 5 for x in N]]])  # [batch, 1, rows]
    candidates = torch.tensor([[2.0, 2.5], [0.7, 0.8], [4.0, 3.0]])
    for layer in range(3):
        rows = sharpness.rows(n, candidates, layer)
        assert rows.shape == (3, 2, 2, len(N))
        for c in range(3):
            for b in range(2):
                for h in range(2):
                    knots = [(32.0, 1.0), (64.0, float(fixed[layer, h])), (128.0, float(candidates[c, h]))]
                    expected = [by_hand(x, knots) for x in n[b, 0].tolist()]
                    assert rows[c, b, h].tolist() == pytest.approx(expected)


def test_the_first_length_has_no_shorter_ones() -> None:
    rows = SharpnessByLength(32, 128).rows(torch.tensor([[N]]), torch.tensor([[2.0]]), layer=0)
    assert rows[0, 0, 0].tolist() == pytest.approx([by_hand(n, [(32, 1.0), (128, 2.0)]) for n in N])


@pytest.mark.parametrize("causal", [False, True])
def test_strips_lie_evenly_over_the_rows_that_count_and_tell_the_same_response(causal: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 2, 2000, 8, generator=draw) for _ in range(3))
    equation = Equation(query, key, value, Visible.build(2000, 2000, causal=causal))
    forward = AtSharpness(1, SharpnessByLength(500, 2000), "entropy", torch.ones(1, 1).double())
    strips = forward.strips(equation)
    assert len(strips) == 16
    assert all(part.stop - part.start == 32 for part in strips)
    # A causal row counts when it sees more than half of what the last one sees
    assert (strips[0].start, strips[-1].stop) == (1000 if causal else 0, 2000)
    some = forward.response(0, equation, torch.tensor([1.3]).double(), strips)
    every = forward.response(0, equation, torch.tensor([1.3]).double())
    torch.testing.assert_close(some.y, every.y, rtol=0.01, atol=0)
    assert some.y.shape == (3, 1)


def test_a_short_input_is_one_strip() -> None:
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 300, 8, generator=draw) for _ in range(3))
    equation = Equation(query, key, value, Visible.build(300, 300))
    assert AtSharpness(1, SharpnessByLength(64, 300), "pmax", torch.ones(1, 1).double()).strips(equation) == [slice(0, 300)]


def sliding(layers: list[str]) -> transformers.Gemma3ForCausalLM:
    """Rows of its sliding layers see half of the training length."""
    config = transformers.Gemma3TextConfig(
        vocab_size=384, hidden_size=32, intermediate_size=48, num_hidden_layers=len(layers), num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=1, max_position_embeddings=32, sliding_window=16,
        layer_types=layers, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.Gemma3ForCausalLM(config).eval()


@pytest.mark.parametrize("scope", ["layer", "head"])
def test_layers_that_see_no_more_than_in_training_have_no_temperature(scope: str) -> None:
    model, tokenizer = sliding(["sliding_attention", "full_attention", "sliding_attention"]), transformers.ByT5Tokenizer()
    (found,) = lw.calibrate(model, tokenizer, 64, scope=scope, show_progress=False).temperatures
    tau = torch.tensor(found.tau).reshape(3, -1)
    assert bool((tau[[0, 2]] == 1).all())
    assert bool((tau[1] != 1).all())
    # The ends of the search, 0.1 and 2, are where a layer without a say would be led
    assert bool(((tau[1] > 0.2) & (tau[1] < 1.9)).all())


@pytest.mark.parametrize("scope", ["model", "layer", "head"])
def test_a_model_that_sees_no_more_than_in_training_is_refused_in_these_words(scope: str) -> None:
    model, tokenizer = sliding(["sliding_attention"] * 2), transformers.ByT5Tokenizer()
    with pytest.raises(BadInput, match="no row sees more keys than the training length of 32 at length 64"):
        lw.calibrate(model, tokenizer, 64, scope=scope, show_progress=False)
