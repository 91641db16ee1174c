"""ALiBi that a model was trained with: its slopes, what a baked temperature makes of them, and the config that carries it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.models.trained_alibi import AlibiSlopes, check_factors, factors_of


def test_the_bias_falls_by_its_slope_with_every_token_of_distance() -> None:
    bias = AlibiSlopes([0.5, 0.25]).bias(2, 4, before=2)
    assert bias[0, 0].tolist() == [[-1.0, -0.5, 0.0, -0.5], [-1.5, -1.0, -0.5, 0.0]]
    assert torch.equal(bias[0, 1], bias[0, 0] / 2)


def test_factors_multiply_and_make_the_same_slopes_again() -> None:
    slopes = AlibiSlopes([0.5, 0.25], [2.0, 1.0])
    slopes.sharpen([3.0, 4.0])
    assert slopes.slopes == (3.0, 1.0)
    assert slopes.weight.tolist() == AlibiSlopes([0.5, 0.25], slopes.factors).weight.tolist() == [3.0, 1.0]


def test_factors_that_do_not_fit_the_layers_are_refused() -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2}
    config = SimpleNamespace(**sizes, alibi_factors=[[1.0, 2.0], [3.0, 4.0]])
    check_factors(config)
    assert factors_of(config, 1) == [3.0, 4.0]
    assert factors_of(SimpleNamespace(alibi_factors=None), 1) is None
    with pytest.raises(BadInput, match="alibi_factors must be 2 lists, one a layer, of 2 numbers"):
        check_factors(SimpleNamespace(**sizes, alibi_factors=[[1.0], [2.0]]))
