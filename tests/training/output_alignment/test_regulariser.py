"""L* = L_train + alpha L_misalign of toy models, against loops in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lengthwise import BadInput
from lengthwise.training.output_alignment import fused
from lengthwise.training.output_alignment import loss as loss_module
from lengthwise.training.output_alignment.fused import IGNORED
from lengthwise.training.output_alignment.regulariser import Regulariser, TwoReadings, regularised_loss
from tests.conftest import make, tokens

L = 12


def log_probabilities(model: Any, row: list[int]) -> list[list[float]]:
    """Of every next token, from a reading of this row alone."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([row])).logits[0].double().log_softmax(-1).tolist()


def by_hand(model: Any, rows: list[list[int]], labels: list[list[int]], extra: int, alpha: float, least: int = 1) -> float:
    """L* with a forward of its own for every reading; `rows` end where their padding starts."""
    crossed, apart = [], []
    for row, wanted in zip(rows, labels, strict=True):
        readings = [log_probabilities(model, row[start : start + L]) for start in (0, extra)]
        for start, reading in zip((0, extra), readings, strict=True):
            answers = wanted[start : start + L]
            crossed += [-reading[t][answers[t + 1]] for t in range(len(reading) - 1) if answers[t + 1] != IGNORED]
        for i in range(extra + least - 1, len(readings[0])):
            one, two = readings[0][i], readings[1][i - extra]
            apart.append(-math.fsum(math.exp(q) * p + math.exp(p) * q for p, q in zip(one, two, strict=True)))
    return math.fsum(crossed) / len(crossed) + alpha * math.fsum(apart) / len(apart)


@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
@pytest.mark.parametrize(("overlap", "least"), [("whole", 1), ("half", L // 2)])
@pytest.mark.parametrize("extra", [1, 4, L // 2])
def test_the_loss_is_a_loop_over_tokens(name: str, overlap: str, least: int, extra: int) -> None:
    model, ids = make(name).double(), tokens(L + L // 2, batch=3)
    rows = ids.tolist()
    regulariser = Regulariser(L, alpha=0.3, overlap=overlap)
    with torch.no_grad():
        loss = float(regularised_loss(model, {"input_ids": ids}, regulariser, extra))
    assert loss == pytest.approx(by_hand(model, rows, rows, extra, 0.3, least), rel=1e-9)


def directly(model: Any, ids: torch.Tensor, extra: int, alpha: float) -> torch.Tensor:
    """L* by the symmetric KL, left to autograd: two forwards, and KL as torch has it, both ways."""
    one, other = (model(input_ids=ids[:, start : start + L]).logits.log_softmax(-1) for start in (0, extra))
    crossed = [
        torch.nn.functional.cross_entropy(reading[:, :-1].flatten(0, 1), ids[:, start + 1 : start + L].flatten())
        for reading, start in ((one, 0), (other, extra))
    ]
    one, other = one[:, extra:].flatten(0, 1), other[:, : L - extra].flatten(0, 1)
    apart = sum(
        torch.nn.functional.kl_div(a, b, log_target=True, reduction="batchmean") for a, b in ((one, other), (other, one))
    )
    return sum(crossed) / 2 + alpha * apart


@pytest.mark.parametrize("extra", [1, 4, L // 2])
def test_compared_by_kl_the_loss_and_every_gradient_are_autograds(extra: int) -> None:
    model, ids = make("llama").double(), tokens(L + L // 2, batch=3)
    # Surer of some words than of others, or there is nothing to compare
    model.lm_head.weight.data *= 20
    loss = regularised_loss(model, {"input_ids": ids}, Regulariser(L, alpha=3.0, compare="kl"), extra)
    expected, plain = (directly(model, ids, extra, alpha) for alpha in (3.0, 0.0))
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    assert float(expected.detach()) > 1.01 * float(plain.detach())
    weights = list(model.parameters())
    for name, found, wanted in zip(
        dict(model.named_parameters()), *(torch.autograd.grad(one, weights) for one in (loss, expected)), strict=True
    ):
        assert torch.allclose(found, wanted, rtol=1e-8, atol=1e-12), name


def test_padding_and_labels_that_are_no_targets_count_nowhere() -> None:
    model, ids = make("llama").double(), tokens(L + 3, batch=2)
    mask, labels = torch.ones_like(ids), ids.clone()
    mask[1, 9:] = 0
    labels[0, :5] = IGNORED
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    with torch.no_grad():
        loss = float(regularised_loss(model, batch, Regulariser(L, alpha=0.2), 3))
    rows = [ids[0].tolist(), ids[1, :9].tolist()]
    assert loss == pytest.approx(by_hand(model, rows, [labels[0].tolist(), rows[1]], 3, 0.2), rel=1e-9)
    # Targets: all but the first of each reading that are labelled; positions: tokens of the row in both readings
    assert TwoReadings.of(batch, Regulariser(L).views(3)).counts.tolist() == [7 + 10 + 8 + 5, 9 + 6]


def test_without_alpha_it_is_the_cross_entropy_of_both_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = make("llama"), tokens(L + 4, batch=3)
    monkeypatch.setattr(fused, "_cross_and_compare", None)
    with torch.no_grad():
        loss = regularised_loss(model, {"input_ids": ids}, Regulariser(L, alpha=0), 4)
        own = [model(input_ids=part, labels=part).loss for part in (ids[:, :L], ids[:, 4 : L + 4])]
    assert float(loss) == pytest.approx(float(sum(own)) / 2, rel=1e-6)


def test_gradients_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = make("llama").double(), tokens(L + 4, batch=2)
    gradients = []
    for at_once in (2**24, 5 * 4 * 384):
        monkeypatch.setattr(loss_module, "LOGITS_AT_ONCE", at_once)
        loss = regularised_loss(model, {"input_ids": ids}, Regulariser(L, alpha=0.3), 4)
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)
        assert float(one.abs().max()) > 0


def test_a_step_against_the_gradient_brings_the_readings_together() -> None:
    model, batch = make("llama").double(), {"input_ids": tokens(L + 4, batch=2)}
    only, plain = Regulariser(L, alpha=1e6), Regulariser(L, alpha=0)
    before = regularised_loss(model, batch, only, 4)
    for parameter, slope in zip(model.parameters(), torch.autograd.grad(before, list(model.parameters())), strict=True):
        parameter.data -= 1e-10 * slope
    with torch.no_grad():
        after = regularised_loss(model, batch, only, 4)
        assert float(after) < float(before.detach())
        assert math.isfinite(float(regularised_loss(model, batch, plain, 4)))


def test_logits_of_other_places_are_refused() -> None:
    """As prompt tuning's: the tokens it learns stand in front, and every target would be compared with an earlier one's."""
    readings, regulariser = TwoReadings.of({"input_ids": tokens(18)}, Regulariser(16).views(2)), Regulariser(16)
    with pytest.raises(BadInput, match=r"given \(2, 16\) tokens and gave logits of \(2, 21\); leave out .* prompt tuning"):
        readings.loss(torch.zeros(2, 21, 384), regulariser, readings.counts)


def test_rows_hold_both_readings_for_any_e_of_the_range() -> None:
    needed = {sampling: Regulariser(16, sampling=sampling).tokens for sampling in ("1..L/2", "1..L/4", "L/4..L/2", "1..L")}
    assert needed == {"1..L/2": 24, "1..L/4": 20, "L/4..L/2": 24, "1..L": 31}


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: Regulariser(16, alpha=-0.1), "alpha must be a number from 0 on, not -0.1"),
        (lambda: Regulariser(16, alpha=math.nan), "not nan"),
        (lambda: Regulariser(16, sampling="1..L", overlap="half"), "no position in common"),
        (lambda: Regulariser(1), "no e in 1..L/2"),
        (lambda: Regulariser(16, compare="KL"), "compare must be one of sce, kl, not 'KL'"),
        (lambda: TwoReadings.of({"input_ids": tokens(17)}, Regulariser(16).views(2)), "17 tokens are too short .* at least 18"),
        (
            lambda: TwoReadings.of({"input_ids": tokens(18), "position_ids": tokens(18)}, Regulariser(16).views(2)),
            "not of position_ids",
        ),
    ],
)
def test_bad_input_is_refused(make_it: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_it()
