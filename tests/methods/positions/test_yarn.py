"""YaRN against transformers' own, and against its formula written with another derivation."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.errors import BadInput
from lengthwise.methods.positions.yarn import Yarn
from lengthwise.methods.spec import methods_of


def plain(d: int, base: float) -> torch.Tensor:
    return 1.0 / base ** (torch.arange(0, d, 2, dtype=torch.float32) / d)


def of_transformers(d: int, base: float, factor: float, train_length: int, **betas: float) -> tuple[torch.Tensor, float]:
    config = LlamaConfig(hidden_size=4 * d, num_attention_heads=4, head_dim=d, max_position_embeddings=train_length)
    config.rope_parameters = {
        "rope_type": "yarn",
        "rope_theta": base,
        "factor": factor,
        "original_max_position_embeddings": train_length,
        **betas,
    }
    return ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))


@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0, 32.5])
@pytest.mark.parametrize("base", [100.0, 10_000.0, 500_000.0])
def test_frequencies_and_temperature_are_those_of_transformers(factor: float, base: float) -> None:
    for d, train_length in itertools.product([8, 48, 64, 128], [16, 256, 8192]):
        expected, attention_factor = of_transformers(d, base, factor, train_length)
        own = plain(d, base)
        for method in (Yarn(factor, base, train_length=train_length), Yarn(factor, train_length=train_length)):
            torch.testing.assert_close(method.frequencies(own, 99), expected, rtol=5e-7, atol=0)
            # transformers multiplies cos and sin of queries and of keys
            g = method.inverse_temperature(torch.tensor([[[1, train_length, 10**6]]]))
            assert g.tolist() == [[pytest.approx([attention_factor**2] * 3, rel=1e-6)]]


def test_other_betas_are_those_of_transformers() -> None:
    expected, _ = of_transformers(64, 10_000.0, 8.0, 1024, beta_fast=16.0, beta_slow=2.0)
    found = Yarn(8, train_length=1024, beta_fast=16, beta_slow=2).frequencies(plain(64, 10_000.0), 1)
    torch.testing.assert_close(found, expected, rtol=5e-7, atol=0)


def test_a_pair_is_judged_by_its_turns_within_the_training_length() -> None:
    """A pair that turns more often than beta_fast keeps its frequency, one that turns less often than once loses the factor."""
    train_length, own = 2048, plain(128, 10_000.0)
    found = Yarn(16, train_length=train_length).frequencies(own, 1)
    ratios = []
    for theta, new in zip(own.tolist(), found.tolist(), strict=True):
        turns = train_length * theta / (2 * math.pi)
        ratios.append(theta / new)
        if turns > 32 * 10_000 ** (1 / 64):  # one more pair than the bound, which is rounded down
            assert theta == pytest.approx(new, rel=1e-6)
        if turns < 10_000 ** (-1 / 64):  # and rounded up
            assert theta == pytest.approx(16 * new, rel=1e-6)
    assert ratios == sorted(ratios)
    assert 1.5 < ratios[30] < 15


def test_the_ramp_worked_out_by_hand() -> None:
    # d = 8, base = 16: dim(r) = 8 ln(n / (2 pi r)) / (2 ln 16); with n = 2 pi 16, dim(8) = 1 and dim(1) = 4
    own = torch.tensor([16 ** (-i / 4) for i in range(4)])
    found = Yarn(2, train_length=101, base=16, beta_fast=8.0, beta_slow=1.0).frequencies(own, 1)
    # 101 is just above 2 pi 16 = 100.5, so the bounds are floor(1.00...) = 1 and ceil(4.00...) = 5
    assert (own / found).tolist() == pytest.approx([1, 1, 1 / (1 - 0.25 / 2), 1 / (1 - 0.5 / 2)], rel=1e-6)


def test_the_temperature_worked_out_by_hand() -> None:
    # (0.1 ln 16 + 1)^2
    g = Yarn(16, train_length=64).inverse_temperature(torch.tensor([1, 10_000]), layer=3)
    assert g.tolist() == pytest.approx([1.631390] * 2, abs=1e-6)
    assert g.dtype == torch.float32


def test_the_temperature_can_be_left_out_without_touching_the_frequencies() -> None:
    own = plain(64, 10_000.0)
    bare, whole = Yarn(8, train_length=256, temperature=False), Yarn(8, train_length=256)
    assert bare.inverse_temperature(torch.tensor([1, 4096])).tolist() == [1.0, 1.0]
    assert torch.equal(bare.frequencies(own, 1), whole.frequencies(own, 1))


def test_a_factor_of_one_changes_nothing() -> None:
    own = plain(64, 10_000.0)
    method = Yarn(1, train_length=256)
    assert torch.equal(method.frequencies(own, 1), own)
    assert method.inverse_temperature(torch.tensor([7])).tolist() == [1.0]
    assert method.leaves_alone(10**6)
    assert not Yarn(1.01, train_length=256).leaves_alone(1)


def test_pairs_that_all_turn_fast_are_all_kept() -> None:
    own = plain(4, 1.5)
    assert torch.equal(Yarn(4, train_length=10**6, base=1.5).frequencies(own, 1), own)


@pytest.mark.parametrize("length", [1, 256, 257, 300, 4096])
def test_a_dynamic_factor_is_that_of_the_input(length: int) -> None:
    (method,) = methods_of("yarn:dynamic=true", {"train_length": 256, "base": 10_000.0})
    own, fixed = plain(64, 10_000.0), Yarn(max(1.0, length / 256), train_length=256)
    torch.testing.assert_close(method.frequencies(own, length), fixed.frequencies(own, 1), rtol=5e-7, atol=0)
    # Rows of a sequence share the factor of its last; the other sequence is as long as the training was
    visible = torch.stack([torch.arange(1, length + 1), torch.arange(1, length + 1).clamp_max(256)])[:, None]
    expected = [[[pytest.approx((0.1 * math.log(max(1, length / 256)) + 1) ** 2)]], [[1.0]]]
    assert method.inverse_temperature(visible).tolist() == expected
    assert method.leaves_alone(length) == (length <= 256)
    assert method.stock_rotation is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"factor": 0.5}, r"factor >= 1, not 0\.5"),
        ({"factor": float("nan")}, "factor >= 1, not nan"),
        ({"factor": None}, r"needs factor; write yarn:factor=\.\.\., or yarn:dynamic=true"),
        ({"dynamic": True}, r"takes its factor from each input, and factor=2\.0 too; leave one of them out"),
        ({"base": 1.0}, r"base > 1, not 1\.0"),
        ({"beta_fast": 1.0, "beta_slow": 2.0}, r"beta_slow < beta_fast, not 2\.0 and 1\.0"),
        ({"train_length": 6}, r"train_length > 6\.28, not 6"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, float | None], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Yarn(**{"factor": 2.0, "train_length": 256, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("own", [[1.0], [1.0, 0.0], [1.0, 1.0]])
def test_frequencies_that_hide_the_base_ask_for_it(own: list[float]) -> None:
    with pytest.raises(BadInput, match=r"cannot tell the base .* write yarn:base="):
        Yarn(2, train_length=256).frequencies(torch.tensor(own), 1)
    Yarn(2, train_length=256, base=10_000.0).frequencies(torch.tensor(own), 1)
