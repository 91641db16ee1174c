"""L_SCE, symmetric KL and their mean over an overlap, against hand computation, loops in float64 and finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.special import rel_entr
from scipy.stats import entropy

from lengthwise import BadInput, misalignment_loss
from lengthwise.training.output_alignment import loss as loss_module
from lengthwise.training.output_alignment.loss import symmetric_cross_entropy, symmetric_kl


def logits(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def by_hand(row: torch.Tensor, other: torch.Tensor) -> float:
    """Equation 1 word by word."""
    y, z = ([math.exp(v) for v in some.tolist()] for some in (row, other))
    y, z = [v / math.fsum(y) for v in y], [v / math.fsum(z) for v in z]
    return -math.fsum(b * math.log(a) + a * math.log(b) for a, b in zip(y, z, strict=True))


def test_two_words_by_hand() -> None:
    # y = (3/4, 1/4), y' = (1/2, 1/2): 1/2 ln(4/3) + 1/2 ln 4 + ln 2, and (1/4) ln 3
    row, other = torch.tensor([math.log(3.0), 0.0]), torch.tensor([5.0, 5.0])
    assert float(symmetric_cross_entropy(row, other)) == pytest.approx(0.5 * math.log(16 / 3) + math.log(2), rel=1e-6)
    assert float(symmetric_kl(row, other)) == pytest.approx(0.25 * math.log(3), rel=1e-6)


def test_against_scipy_in_float64() -> None:
    a, b = logits(5, 40), logits(5, 40, seed=1)
    p, q = a.softmax(-1).numpy(), b.softmax(-1).numpy()
    kl = (rel_entr(p, q) + rel_entr(q, p)).sum(-1)
    assert symmetric_kl(a, b).numpy() == pytest.approx(kl, rel=1e-12)
    assert symmetric_cross_entropy(a, b).numpy() == pytest.approx(kl + entropy(p, axis=-1) + entropy(q, axis=-1), rel=1e-12)


def test_equal_distributions_are_as_misaligned_as_they_are_unsure() -> None:
    a = logits(3, 20)
    assert symmetric_cross_entropy(a, a + 7).numpy() == pytest.approx(2 * entropy(a.softmax(-1).numpy(), axis=-1), rel=1e-12)
    assert symmetric_kl(a, a + 7).abs().max() < 1e-12


def test_the_printed_code_has_another_value() -> None:
    """Appendix D: - output1_prob * exp(output2_prob) - output1_prob * exp(output1_prob), of log-probabilities."""
    a, b = logits(2, 6, 30), logits(2, 6, 30, seed=1)
    one, two = a.log_softmax(-1), b.log_softmax(-1)
    printed = torch.mean(torch.sum(-one * torch.exp(two) - one * torch.exp(one), -1))
    expected = sum(by_hand(a[i, j], b[i, j]) for i in range(2) for j in range(6)) / 12
    ours = float(symmetric_cross_entropy(a, b).mean())
    assert ours == pytest.approx(expected, rel=1e-12)
    assert abs(float(printed) - expected) > 0.1 * expected
    # Nor is it symmetric, as its name says, where equation 1 is
    swapped = torch.mean(torch.sum(-two * torch.exp(one) - two * torch.exp(two), -1))
    assert abs(float(swapped - printed)) > 0.01
    assert float(symmetric_cross_entropy(b, a).mean()) == pytest.approx(ours, rel=1e-12)
    # And without a dimension, as printed, probabilities of a word add up to 1 over the batch
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        assert torch.allclose(torch.nn.functional.log_softmax(a).exp().sum(0), torch.ones(6, 30, dtype=torch.float64))


@pytest.mark.parametrize(("overlap", "first"), [("whole", 0), ("half", 4)])
@pytest.mark.parametrize("extra", [1, 3, 5])
def test_the_mean_over_the_overlap_is_a_loop_over_tokens(overlap: str, first: int, extra: int) -> None:
    length = 10
    a, b = logits(3, length, 12), logits(3, length, 12, seed=1)
    # Position i of [0, L) and position i - e of [e, L + e) follow the same token
    found = [by_hand(a[row, i], b[row, i - extra]) for row in range(3) for i in range(length) if i - extra >= first]
    assert float(misalignment_loss(a, b, extra, overlap=overlap)) == pytest.approx(sum(found) / len(found), rel=1e-12)


def test_masked_tokens_do_not_count() -> None:
    a, b = logits(2, 10, 12), logits(2, 10, 12, seed=1)
    mask = torch.ones(2, 10)
    mask[1, 7:] = 0
    found = [by_hand(a[row, i], b[row, i - 2]) for row in range(2) for i in range(2, 10 if row == 0 else 7)]
    assert float(misalignment_loss(a, b, 2, mask=mask)) == pytest.approx(sum(found) / len(found), rel=1e-12)


def test_chunks_change_neither_the_loss_nor_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (logits(2, 11, 7, seed=seed).requires_grad_() for seed in (0, 1))
    whole = misalignment_loss(a, b, 3)
    expected = torch.autograd.grad(whole, (a, b))
    # Three positions of two rows at a time, which divides nothing evenly
    monkeypatch.setattr(loss_module, "LOGITS_AT_ONCE", 3 * 2 * 7)
    parts = misalignment_loss(a, b, 3)
    assert float(parts.detach()) == pytest.approx(float(whole.detach()), rel=1e-14)
    for found, wanted in zip(torch.autograd.grad(parts, (a, b)), expected, strict=True):
        assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-15)
        assert float(wanted.abs().max()) > 1e-3
    # Neither reading is held fixed: both learn. Positions outside the overlap learn nothing
    assert torch.equal(expected[0][:, :3], torch.zeros(2, 3, 7, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda x, y: misalignment_loss(x, y, 9), (a, b))


def test_probabilities_are_made_a_few_positions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = symmetric_cross_entropy
    monkeypatch.setattr(loss_module, "symmetric_cross_entropy", lambda a, b: (sizes.append(a.numel()), real(a, b))[1])
    monkeypatch.setattr(loss_module, "LOGITS_AT_ONCE", 50)
    misalignment_loss(logits(2, 9, 5), logits(2, 9, 5, seed=1), 1)
    assert sizes == [50, 30]


def test_sixteen_bits_are_widened_before_the_sum() -> None:
    a, b = logits(1, 64, 3000, dtype=torch.float32).bfloat16(), logits(1, 64, 3000, seed=1, dtype=torch.float32).bfloat16()
    exact = float(misalignment_loss(a.double(), b.double(), 8))
    assert misalignment_loss(a, b, 8).dtype == torch.float32
    assert float(misalignment_loss(a, b, 8)) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("upstream", [1, 65536])
def test_words_that_cannot_come_change_neither_the_sum_nor_its_gradients(
    upstream: float, dtype: torch.dtype, rel: float
) -> None:
    some = [logits(1, 4, 7, seed=seed, dtype=dtype).requires_grad_() for seed in (0, 1)]
    expected = upstream * misalignment_loss(some[0], some[1], 1)
    # Words 7 and 8 have no chance in either reading
    a, b = (torch.nn.functional.pad(one.detach(), (0, 2), value=-torch.inf).requires_grad_() for one in some)
    loss = upstream * misalignment_loss(a, b, 1)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=rel)
    for found, wanted in zip(torch.autograd.grad(loss, (a, b)), torch.autograd.grad(expected, some), strict=True):
        assert torch.allclose(found[..., :7], wanted, rtol=rel, atol=rel * float(wanted.abs().max()))
        assert float(found[..., 7:].abs().max()) == 0


@pytest.mark.parametrize(
    ("a", "b", "extra", "mask", "message"),
    [
        (logits(2, 8, 5), logits(2, 7, 5), 1, None, r"both be \[batch, tokens, words\], not \(2, 8, 5\) and \(2, 7, 5\)"),
        (logits(8, 5), logits(8, 5), 1, None, r"not \(8, 5\) and \(8, 5\)"),
        (logits(2, 8, 5), logits(2, 8, 5), 8, None, "no position in common"),
        (logits(2, 8, 5), logits(2, 8, 5), 2, torch.zeros(2, 8), "the mask leaves no position"),
        (
            logits(2, 8, 5),
            logits(2, 8, 5),
            2,
            torch.ones(1, 8),
            r"mask must be \[batch, tokens\], \(2, 8\) here, not \(1, 8\)",
        ),
    ],
)
def test_bad_input_is_refused(a: torch.Tensor, b: torch.Tensor, extra: int, mask: torch.Tensor | None, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        misalignment_loss(a, b, extra, mask=mask)
