"""When a layer runs the model's own implementation, and how seldom it asks its methods."""

from __future__ import annotations

import torch

import lengthwise as lw
from lengthwise.methods.temperature.head_scale import HeadScale
from tests.conftest import (
    TRAIN_LENGTH,
    logits,
    make,
    tokens,
)


class Counted:
    """A law that counts how often it is asked."""

    def __init__(self, spared: int) -> None:
        self.spared, self.asked = spared, 0

    def inverse_temperature(self, visible: torch.Tensor, layer: int = 0) -> torch.Tensor:
        self.asked += 1
        return torch.where(visible > self.spared, 1.5, 1.0)


def test_a_law_that_spares_the_training_length_is_not_asked_at_every_token() -> None:
    model = make("llama")
    room = TRAIN_LENGTH - 8
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(tokens(8), **options, max_new_tokens=room)
    asked = []
    for more in (1, room):
        law = Counted(TRAIN_LENGTH)
        with lw.extend(model, law, train_length=TRAIN_LENGTH):
            found = model.generate(tokens(8), **options, max_new_tokens=more)
        asked.append(law.asked)
        assert torch.equal(found, expected[:, : 8 + more])
    assert asked[0] == asked[1] > 0


def test_a_law_that_spares_the_training_length_alone_still_changes_shorter_inputs() -> None:
    """CLEX's factor goes by the widest row: 1 at the training length, below 1 before it."""
    model, half = make("llama"), TRAIN_LENGTH // 2
    padded, mask = tokens(TRAIN_LENGTH), (torch.arange(TRAIN_LENGTH) < half)[None].long()
    with lw.extend(model, "clex", train_length=TRAIN_LENGTH):
        same, changed = (logits(model, tokens(length)) for length in (TRAIN_LENGTH, TRAIN_LENGTH - 1))
        together, alone = (logits(model, *inputs) for inputs in ((padded, mask), (padded[:, :half],)))
    torch.testing.assert_close(same, logits(model, tokens(TRAIN_LENGTH)), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(changed, logits(model, tokens(TRAIN_LENGTH - 1)), atol=1e-5)
    torch.testing.assert_close(together[:, :half], alone, atol=1e-5, rtol=1e-4)


def test_scales_that_learn_are_asked_at_every_step() -> None:
    model, scale = make("llama"), HeadScale(3, 4)
    with lw.extend(model, scale, train_length=TRAIN_LENGTH):
        with torch.no_grad():
            before = logits(model, tokens(8))
        model(tokens(8)).logits.sum().backward()
        assert scale.scale.grad is not None
        with torch.no_grad():
            scale.scale.fill_(3)
            assert not torch.allclose(logits(model, tokens(8)), before, atol=1e-4)
