"""Dropout in the kernels: the weights that their hash takes out and no others, in output and gradients alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lengthwise.attention import Equation, RowStatistics, attention, reference
from tests.helpers.kernels import FP16, Case, assert_gradients, assert_right, dropped, gone, leaves_of, with_dropout

pytest.importorskip("triton")
from lengthwise.attention.triton import backward, launch
from lengthwise.attention.triton.dropout import drawn, limit_of
from lengthwise.attention.triton.launch import why_not_triton

SEED = 11
CASES = {
    "all keys": Case(70, temperature="head", dropout=0.3),
    "two tiles of queries": Case(140, heads=1, kv_heads=1, dropout=0.1),
    "no bias": Case(40, heads=1, kv_heads=1, radius=None, dropout=0.5),
    "causal, grouped heads": Case(70, mask="causal", kv_heads=1, temperature="row", dropout=0.2),
    "padding": Case(70, batch=2, heads=1, kv_heads=1, mask="padding", temperature="signs", dropout=0.4),
    "a hole": Case(50, heads=1, kv_heads=1, mask="hole", dropout=0.3),
    "rows in any order": Case(70, heads=1, kv_heads=1, mask="shuffled", dropout=0.3),
    "a filled cache": Case(7, 70, mask="causal", dropout=0.9),
    "half precision": Case(70, heads=1, kv_heads=1, dtype=FP16, mask="causal", temperature="row", dropout=0.1),
    "half precision, whole tiles": Case(260, heads=1, kv_heads=1, dtype=FP16, dropout=0.4),
    "two sequences, grouped heads": Case(40, batch=2, heads=2, kv_heads=1, dropout=0.3),
}


def triton(equation: Equation) -> tuple[Tensor, RowStatistics | None]:
    torch.manual_seed(SEED)
    return attention(equation, implementation="triton")


@pytest.mark.parametrize("name", CASES)
def test_output_lacks_what_was_dropped(name: str) -> None:
    assert_dropped(CASES[name].equation())


def assert_dropped(equation: Equation) -> None:
    out = gone(equation, SEED)
    assert_right(triton, equation, law_of=lambda law: (with_dropout(law, out), reference(law)[1]))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_a_second_try_drops_the_same_weights() -> None:
    """Logits so loud that the frozen maximum overflows."""
    assert_dropped(Case(140, batch=2, heads=1, kv_heads=1, loud=300.0, dropout=0.3).equation())


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_what_was_kept(name: str) -> None:
    equation = CASES[name].equation()
    out = gone(equation, SEED)
    assert_gradients(lambda ours: triton(ours)[0], equation, lambda law: with_dropout(law, out))


def test_a_band_in_several_launches_knows_its_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward, "BAND", 1)
    equation = Case(40, batch=2, dropout=0.3).equation()
    out = gone(equation, SEED)
    assert_gradients(lambda ours: triton(ours)[0], equation, lambda law: with_dropout(law, out))


def test_every_forward_drops_other_weights_and_a_seed_repeats_them() -> None:
    equation = Case(40, dropout=0.5).equation()
    torch.manual_seed(SEED)
    first, second = (attention(equation, implementation="triton")[0] for _ in range(2))
    assert not torch.allclose(first, second)
    assert torch.equal(triton(equation)[0], first)


def test_a_checkpoint_drops_the_same_weights_when_it_computes_them_again() -> None:
    ours, leaves = leaves_of(Case(40, dropout=0.5).equation())

    def output(query: Tensor) -> Tensor:
        return attention(replace(ours, query=query), implementation="triton")[0]

    found = []
    for run in (output, lambda query: checkpoint(output, query, use_reentrant=False)):
        torch.manual_seed(SEED)
        found.append(torch.autograd.grad(run(ours.query).square().sum(), leaves))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_gradients_are_of_one_mask_even_where_a_checkpoint_draws_another() -> None:
    ours, leaves = leaves_of(Case(40, dropout=0.5).equation())

    def output(query: Tensor) -> Tensor:
        return attention(replace(ours, query=query), implementation="triton")[0]

    torch.manual_seed(SEED)
    drawn(ours.query.device)
    out = dropped(drawn(ours.query.device), (*ours.query.shape[:3], ours.visible.keys), ours.dropout)
    up = torch.randn(ours.query.shape, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(SEED)
    kept = checkpoint(output, ours.query, use_reentrant=False, preserve_rng_state=False)
    found = torch.autograd.grad(kept, leaves, up)
    wanted = torch.autograd.grad(with_dropout(ours, out), leaves, up)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("statistics", [True, False])
def test_rows_of_several_runs_take_the_block_path_with_and_without_gradients(statistics: bool) -> None:
    """A checkpoint of the older kind reads first without gradients, then with them, and must draw the same numbers."""
    whole = Case(16, dropout=0.5).equation()
    assert (why_not_triton(whole, statistics) is None) == (not statistics)
    with torch.no_grad():
        assert (why_not_triton(whole, statistics) is None) == (not statistics)


def test_without_dropout_no_random_number_is_drawn_nor_by_a_scan_with_it() -> None:
    torch.manual_seed(SEED)
    before = torch.get_rng_state()
    attention(Case(10).equation(), implementation="triton")
    launch.scan(Case(10, dropout=0.5).equation(), torch.ones(1, 1, 1, 1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.95])
def test_so_many_are_dropped_in_every_head_row_and_column(rate: float) -> None:
    out = dropped(torch.tensor([-5, 77], dtype=torch.int32), (2, 4, 512, 512), rate).float()
    for over in ((0, 1, 2, 3), (2, 3), (0, 1, 2), (0, 1, 3)):
        mean = out.mean(over)
        deviation = (rate * (1 - rate) / (out.numel() / mean.numel())) ** 0.5
        # The largest of so many
        assert float((mean - rate).abs().max()) < 5 * deviation


def test_what_is_dropped_in_one_place_tells_nothing_of_another() -> None:
    out = dropped(torch.tensor([3, 9], dtype=torch.int32), (2, 4, 256, 256), 0.5).float() - 0.5
    for lag in ((0, 1), (1, 0), (1, 1), (1, -1), (0, 16), (64, 0), (128, 128)):
        together = (out * out.roll(lag, (2, 3))).mean() * 4
        assert abs(float(together)) < 5 / out.numel() ** 0.5, lag
    # This seed gave two heads one mask, its rows in another order, while one word told the other
    heads_in_turn = dropped(torch.tensor([1412548538, 3448498715 - 2**32], dtype=torch.int32), (1, 28, 16384, 8), 0.5)[0]
    one, other = heads_in_turn[5], heads_in_turn[27]
    assert 0.45 < float((one == other[torch.arange(16384) ^ 15257]).float().mean()) < 0.55
    heads = out.flatten(0, 1).flatten(1)
    apart = heads @ heads.T / heads.shape[1] * 4 - torch.eye(8)
    assert float(apart.abs().max()) < 5 / heads.shape[1] ** 0.5
    other = dropped(torch.tensor([4, 9], dtype=torch.int32), (2, 4, 256, 256), 0.5).float() - 0.5
    assert abs(float((out * other).mean() * 4)) < 5 / out.numel() ** 0.5


def test_rows_are_dropped_as_unevenly_as_by_chance() -> None:
    """Keys that took equal steps, x = a j + b, would make 1.8 of this variance, and triples hundreds of deviations."""
    rate, (rows, keys) = 0.1, (4096, 1024)
    out = dropped(torch.tensor([5, 6], dtype=torch.int32), (1, 4, rows, keys), rate)[0].flatten(0, 1).float()
    chance = rate * (1 - rate)
    variance = float(out.sum(1).var() / (keys * chance))
    assert abs(variance - 1) < 5 * (2 / len(out)) ** 0.5
    off = (out - rate) / chance**0.5
    for lag in (1, 2, 16, 100):
        three = off[:, : -2 * lag] * off[:, lag:-lag] * off[:, 2 * lag :]
        assert abs(float(three.mean())) < 5 / three.numel() ** 0.5, lag


def test_limits_are_32_bit_numbers() -> None:
    assert [limit_of(rate) for rate in (0.0, 0.5, 1.0)] == [-(2**31), 0, 2**31 - 1]
