"""NTK against its base written out, and against transformers' dynamic NTK."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.errors import BadInput
from lengthwise.methods.positions.ntk import Ntk
from lengthwise.methods.spec import methods_of


def plain(d: int, base: float = 10_000.0) -> torch.Tensor:
    return torch.tensor([base ** (-2 * i / d) for i in range(d // 2)])


@pytest.mark.parametrize("d", [4, 16, 128])
@pytest.mark.parametrize("factor", [1.0, 4.0, 31.5])
def test_frequencies_are_those_of_a_larger_base(d: int, factor: float) -> None:
    base = 10_000.0 * factor ** (d / (d - 2))
    expected = [base ** (-2 * i / d) for i in range(d // 2)]
    found = Ntk(factor, train_length=64).frequencies(plain(d), 999)
    assert found.tolist() == pytest.approx(expected, rel=1e-6)
    assert found.dtype == torch.float32


def test_the_highest_frequency_stays_and_the_lowest_is_divided_by_the_factor() -> None:
    own = plain(32)
    stretched = Ntk(8, train_length=64).frequencies(own, 1)
    assert stretched[0] == own[0]
    assert float(own[-1] / stretched[-1]) == pytest.approx(8)


def test_a_single_pair_keeps_its_frequency() -> None:
    assert Ntk(8, train_length=64).frequencies(torch.tensor([1.0]), 1).tolist() == [1.0]


@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("length", [1, 64, 65, 100, 2048])
def test_dynamic_frequencies_are_those_of_transformers(factor: float, length: int) -> None:
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16, max_position_embeddings=64)
    config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 500_000.0, "factor": factor}
    expected, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, torch.device("cpu"), seq_len=length)
    found = Ntk(factor, train_length=64, dynamic=True).frequencies(plain(16, 500_000.0), length)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("length", [64, 100, 2048])
def test_dynamic_needs_no_factor_and_then_stretches_by_the_inputs_length(length: int) -> None:
    (method,) = methods_of("ntk:dynamic=true", {"train_length": 64})
    expected = Ntk(length / 64, train_length=64).frequencies(plain(16), length)
    torch.testing.assert_close(method.frequencies(plain(16), length), expected)  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match=r"needs factor; write ntk:factor=\.\.\., or ntk:dynamic=true"):
        methods_of("ntk", {"train_length": 64})


def test_dynamic_leaves_the_training_length_alone() -> None:
    method, own = Ntk(8, train_length=64, dynamic=True), plain(16)
    assert method.leaves_alone(64)
    assert torch.equal(method.frequencies(own, 64), own)
    assert not method.leaves_alone(65)


def test_static_leaves_nothing_alone_but_with_a_factor_of_one() -> None:
    assert not Ntk(2, train_length=64).leaves_alone(1)
    assert Ntk(1, train_length=64).leaves_alone(10**6)
    assert not Ntk(2, train_length=64).dynamic


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(BadInput, match=r"ntk needs factor >= 1, not 0\.5"):
        Ntk(0.5, train_length=64)
    with pytest.raises(BadInput, match="train_length > 0, not 0"):
        Ntk(2, train_length=0)
