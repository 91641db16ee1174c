"""When a layer runs the model's own implementation, and how seldom it asks its methods."""

from __future__ import annotations

import torch

import lengthwise as lw
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
    model = make("llama")
    with lw.extend(model, "clex", train_length=TRAIN_LENGTH):
        same, changed = (logits(model, tokens(length)) for length in (TRAIN_LENGTH, TRAIN_LENGTH - 1))
    assert torch.equal(same, logits(model, tokens(TRAIN_LENGTH)))
    assert not torch.allclose(changed, logits(model, tokens(TRAIN_LENGTH - 1)), atol=1e-5)
