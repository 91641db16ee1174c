"""The loss in one pass over the logits, and its gradient, against torch's own differentiation of the definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lengthwise.training.output_alignment import loss as loss_module
from lengthwise.training.output_alignment.fused import IGNORED, weighted_sums
from lengthwise.training.output_alignment.views import Views

BATCH, L, WORDS = 2, 9, 7


def drawn(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Logits, and targets of which some are none."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2 * BATCH, L, WORDS, generator=generator, dtype=torch.float64)
    targets = torch.randint(WORDS, (2 * BATCH, L), generator=generator)
    targets[:, -1] = targets[0, 3] = targets[3, 5] = IGNORED
    return logits.to(dtype).requires_grad_(), targets


def defined(logits: Tensor, targets: Tensor, counted: Tensor, views: Views, compare: str) -> list[Tensor]:
    """Both sums, one position after the other."""
    y = logits.exp() / logits.exp().sum(-1, keepdim=True)
    crossed = [-y[r, t, targets[r, t]].log() for r in range(2 * BATCH) for t in range(L) if targets[r, t] != IGNORED]
    apart = []
    for row in range(BATCH):
        for at in range(views.positions):
            # The last position of the overlap is the last of the first reading
            i = L - views.positions + at
            if counted[row, at]:
                a, b = y[row, i], y[BATCH + row, i - views.extra]
                crossed_over = -(b @ a.log()) - (a @ b.log())
                entropies = -(a @ a.log()) - (b @ b.log())
                apart.append(crossed_over if compare == "sce" else crossed_over - entropies)
    return [torch.stack(crossed).sum(), torch.stack(apart).sum()]


@pytest.mark.parametrize("compare", ["sce", "kl"])
@pytest.mark.parametrize("at_once", [2**24, 5 * WORDS])
@pytest.mark.parametrize(("extra", "overlap"), [(1, "whole"), (4, "whole"), (8, "whole"), (1, "half"), (4, "half")])
def test_sums_and_gradients_are_those_of_the_definitions(
    extra: int, overlap: str, at_once: int, compare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "LOGITS_AT_ONCE", at_once)
    views = Views(L, extra, overlap)
    logits, targets = drawn()
    counted = torch.ones(BATCH, views.positions, dtype=torch.bool)
    counted[1, views.positions // 2 + 1 :] = False
    weights = torch.tensor([0.03, 0.4], dtype=torch.float64)
    expected = defined(logits, targets, counted, views, compare)
    (wanted,) = torch.autograd.grad(weights[0] * expected[0] + weights[1] * expected[1], logits)
    loss, sums = weighted_sums(logits, targets, counted, views, weights, compare)
    (found,) = torch.autograd.grad(3 * loss, logits)
    assert sums.tolist() == pytest.approx([float(one.detach()) for one in expected], rel=1e-12)
    assert float(loss.detach()) == pytest.approx(float(weights @ sums), rel=1e-12)
    assert torch.allclose(found, 3 * wanted, rtol=1e-10, atol=1e-14)


def test_without_the_second_weight_it_is_torchs_cross_entropy() -> None:
    logits, targets = drawn()
    weights, counted = torch.tensor([0.5, 0.0], dtype=torch.float64), torch.ones(BATCH, L - 2, dtype=torch.bool)
    own = 0.5 * torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
    loss, sums = weighted_sums(logits, targets, counted, Views(L, 2), weights)
    assert float(sums[1]) == 0
    assert torch.allclose(loss, own, rtol=1e-12)
    (found,), (wanted,) = (torch.autograd.grad(one, logits) for one in (loss, own))
    assert torch.allclose(found, wanted, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("compare", ["sce", "kl"])
def test_finite_differences_agree(compare: str) -> None:
    logits, targets = drawn()
    weights, counted = torch.tensor([0.2, 0.3], dtype=torch.float64), torch.ones(BATCH, L - 2, dtype=torch.bool)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return weighted_sums(x, targets, counted, Views(L, 2), weights, compare)[0]

    assert torch.autograd.gradcheck(loss, (logits,), fast_mode=True)


def test_cross_entropy_is_what_is_compared_unless_told_otherwise() -> None:
    logits, targets = drawn(torch.float32)
    weights, counted = torch.tensor([0.2, 0.3]), torch.ones(BATCH, L - 2, dtype=torch.bool)
    told, untold = (weighted_sums(logits, targets, counted, Views(L, 2), weights, *more) for more in (("sce",), ()))
    assert torch.equal(told[1], untold[1])
    assert torch.equal(*(torch.autograd.grad(loss, logits)[0] for loss, _ in (told, untold)))


def test_equal_readings_are_no_kl_apart_and_are_not_moved() -> None:
    """Where cross-entropy would still pull: towards being surer."""
    views = Views(L, 2)
    row = drawn()[0].detach()[:BATCH]
    logits = torch.cat([row, row.roll(-2, 1)]).requires_grad_()
    nothing = torch.full((2 * BATCH, L), IGNORED)
    weights, counted = torch.tensor([0.0, 1.0], dtype=torch.float64), torch.ones(BATCH, views.positions, dtype=torch.bool)
    for compare, moves in (("sce", True), ("kl", False)):
        loss, sums = weighted_sums(logits, nothing, counted, views, weights, compare)
        (found,) = torch.autograd.grad(loss, logits)
        assert (float(sums[1]) > 1, bool(found.abs().max() > 1e-3)) == (moves, moves)
        assert moves or float(found.abs().max()) < 1e-15


@pytest.mark.parametrize("compare", ["sce", "kl"])
@pytest.mark.parametrize("weight", [0.3, 65536.0])
def test_words_that_cannot_come_in_either_reading_are_not_apart(weight: float, compare: str) -> None:
    logits, targets = drawn(torch.float32)
    with torch.no_grad():
        logits[..., 3] = float("-inf")
    targets[targets == 3] = IGNORED
    weights, counted = torch.tensor([0.2, weight]), torch.ones(BATCH, L - 2, dtype=torch.bool)
    loss, sums = weighted_sums(logits, targets, counted, Views(L, 2), weights, compare)
    (found,) = torch.autograd.grad(loss, logits)
    others = [0, 1, 2, 4, 5, 6]
    expected = defined(logits.detach()[..., others].double(), targets.clamp_max(3), counted, Views(L, 2), compare)[1]
    assert float(sums[1]) == pytest.approx(float(expected), rel=1e-5)
    assert bool(found.isfinite().all())
    assert float(found[..., 3].abs().max()) == 0


@pytest.mark.parametrize("compare", ["sce", "kl"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_logits_lose_only_what_their_type_loses(dtype: torch.dtype, compare: str) -> None:
    logits, targets = drawn(dtype)
    wide = logits.detach().double().requires_grad_()
    counted = torch.ones(BATCH, L - 2, dtype=torch.bool)
    # As of a batch of a hundred million tokens under a loss scale that brings gradients back into range
    weights, scale = torch.tensor([1e-8, 1e-9], dtype=torch.float64), 2.0**20
    exact, _ = weighted_sums(wide, targets, counted, Views(L, 2), weights, compare)
    loss, _ = weighted_sums(logits, targets, counted, Views(L, 2), weights.float(), compare)
    (found,), (wanted,) = (torch.autograd.grad(scale * one, x) for one, x in ((loss, logits), (exact, wide)))
    assert found.dtype == dtype
    assert float((found.double() - wanted).abs().max()) < 2 * torch.finfo(dtype).eps * float(wanted.abs().max())


def test_nothing_of_the_logits_size_is_kept_but_their_gradient() -> None:
    logits, targets = drawn()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (kept.append(tensor), tensor)[1], lambda tensor: tensor):
        weights = torch.ones(2, dtype=torch.float64)
        weighted_sums(logits, targets, torch.ones(BATCH, L - 2, dtype=torch.bool), Views(L, 2), weights)
    assert [tensor.numel() for tensor in kept] == [logits.numel()]


def test_reading_alone_makes_no_gradient() -> None:
    logits, targets = drawn()
    with torch.no_grad():
        weights = torch.ones(2, dtype=torch.float64)
        loss, _ = weighted_sums(logits.detach(), targets, torch.ones(BATCH, L - 2, dtype=torch.bool), Views(L, 2), weights)
    assert not loss.requires_grad
