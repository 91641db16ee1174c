"""What an encoder must tell by itself, against loops in float64 over the weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from transformers import T5ForConditionalGeneration

from experiments._lib import reader
from experiments._lib.batches import IGNORED, Bound, bound_rows, ends
from experiments._lib.reader import Halfway
from experiments.embedded_model.train import RECIPE

SMALL = {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 4, "num_heads": 2, "num_decoder_layers": 1}
INPUTS = [[5, 6, 7, 8, 9, 1], [11, 12, 1]]
TARGETS = [[20, 21, 1], [22, 23, 24, 25, 26, 27, 28, 1]]
BOUND = [(Bound(1, (30, 31, 32, 33)), Bound(4, (34, 34, 34, 34))), (Bound(2, (35, 36, 36, 37)),)]


def _padded(rows: list[list[int]], value: int) -> Tensor:
    return torch.tensor([row + [value] * (max(map(len, rows)) - len(row)) for row in rows])


def _surprise(state: Tensor, part: Tensor, embedding: Tensor, token: int) -> float:
    """-log p of a token, p over all tokens' products with a part of the state."""
    asked = [float(row @ state) for row in part]
    logits = [sum(a * float(b) for a, b in zip(asked, row, strict=True)) / math.sqrt(len(asked)) for row in embedding]
    return math.log(sum(math.exp(logit - logits[token]) for logit in logits))


def _model() -> T5ForConditionalGeneration:
    model = reader.add(reader.build(RECIPE.config(40, **SMALL), seed=0, attention="eager"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model.double().eval()


def test_losses_are_those_of_the_answer_of_its_first_tokens_and_of_the_names() -> None:
    model = _model()
    halfway = Halfway(model)
    inputs, labels = _padded(INPUTS, 0), _padded(TARGETS, IGNORED)
    asked = torch.tensor([True, True])
    made = reader.losses(model, halfway, inputs, labels, bound_rows(BOUND).long(), asked)
    each, read, binding = (loss.tolist() for loss in made)
    embedding, weights = model.shared.weight.detach(), dict(model.reader.named_parameters())
    for at, (tokens, target) in enumerate(zip(INPUTS, TARGETS, strict=True)):
        with torch.no_grad():
            out = model(input_ids=torch.tensor([tokens]), labels=torch.tensor([target]), output_hidden_states=True)
        assert math.isclose(each[at], float(out.loss), rel_tol=1e-5)
        last = out.encoder_last_hidden_state[0, len(tokens) - 1]
        parts = weights["answer_parts.weight"].detach().split(32)
        told = [_surprise(last, part, embedding, token) for part, token in zip(parts, target[:6], strict=False)]
        assert math.isclose(read[at], sum(told) / len(told), rel_tol=1e-5)
        named = []
        for one in BOUND[at]:
            state = out.encoder_hidden_states[2][0, one.at]  # after two of four blocks
            state = state / math.sqrt(sum(float(value) ** 2 for value in state) / 32)
            parts = weights["name_parts.weight"].detach().split(32)
            named += [_surprise(state, part, embedding, token) for part, token in zip(parts, one.name, strict=True)]
        assert math.isclose(binding[at], sum(named) / len(named), rel_tol=1e-5)


def test_what_cannot_be_known_and_what_is_not_bound_costs_nothing() -> None:
    model = _model()
    inputs, labels = _padded(INPUTS, 0), _padded(TARGETS, IGNORED)
    bound = bound_rows([(), BOUND[1]]).long()
    _, read, binding = reader.losses(model, Halfway(model), inputs, labels, bound, torch.tensor([True, False]))
    assert read[0] > 0 == read[1]
    assert binding[0] == 0 < binding[1]
    *_, none = reader.losses(model, Halfway(model), inputs, labels, bound_rows([(), ()]).long(), torch.tensor([True, False]))
    assert none.tolist() == [0, 0]


def test_a_name_is_told_by_its_two_first_and_two_last_tokens() -> None:
    told = [ends(name) for name in ([4], [4, 5], [4, 5, 6], [4, 5, 6, 7, 8])]
    assert told == [(4, 4, 4, 4), (4, 5, 4, 5), (4, 5, 5, 6), (4, 5, 7, 8)]
    assert bound_rows(BOUND).tolist() == [[0, 1, 30, 31, 32, 33], [0, 4, 34, 34, 34, 34], [1, 2, 35, 36, 36, 37]]
