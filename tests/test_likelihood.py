"""Likelihoods of tokens, in chunks, in one forward and by fresh readings, against the models' own losses and loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf

import lengthwise as lw
from lengthwise import likelihood
from lengthwise.likelihood import reencoded_nll, token_nll, windowed_nll
from lengthwise.tasks.perplexity import Windows
from tests.conftest import DECODER_SIZES, DECODERS, TRAIN_LENGTH, make, tokens


def from_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """-ln p by the definition, token by token in float64, from the model's own logits."""
    with torch.no_grad():
        logits = model(input_ids=ids).logits.double()
    rows = [[-float(logits[b, t].log_softmax(-1)[ids[b, t + 1]]) for t in range(ids.shape[1] - 1)] for b in range(len(ids))]
    return torch.tensor(rows)


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_chunks_give_the_models_own_loss(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # 7 positions of 384 words at a time, which divides nothing evenly
    monkeypatch.setattr(likelihood, "LOGITS_AT_ONCE", 7 * 384)
    model, ids = make(name), tokens(60, batch=3)
    nll = token_nll(model, ids)
    assert nll.shape == (3, 59)
    assert torch.allclose(nll, from_logits(model, ids), atol=1e-5)
    with torch.no_grad():
        loss = model(input_ids=ids, labels=ids).loss
    assert float(nll.mean()) == pytest.approx(float(loss), abs=1e-5)


def test_streams_do_not_depend_on_how_many_share_a_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = make("llama"), tokens(40, batch=5)
    together = token_nll(model, ids)
    monkeypatch.setattr(likelihood, "TOKENS_AT_ONCE", 80)
    assert torch.allclose(token_nll(model, ids), together, atol=1e-5)


def test_the_vocabulary_never_meets_a_whole_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = make("llama"), []
    monkeypatch.setattr(likelihood, "LOGITS_AT_ONCE", 16 * 384)
    model.lm_head.register_forward_hook(lambda _module, _inputs, output: rows.append(output.numel() // output.shape[-1]))
    token_nll(model, tokens(200))
    assert max(rows) == 16
    # All positions once, and the last once more, by the model itself and as a check
    assert sum(rows) == 199 + 2


def test_a_method_is_applied_beyond_its_training_length_only() -> None:
    model, ids = make("llama"), tokens(80, batch=2)
    plain, sharper = token_nll(model, ids), token_nll(model, ids, method="log")
    with lw.extend(model, "log"):
        assert torch.allclose(sharper, from_logits(model, ids), atol=1e-5)
    assert torch.allclose(plain[:, :TRAIN_LENGTH], sharper[:, :TRAIN_LENGTH], atol=1e-6)
    assert float((plain - sharper)[:, TRAIN_LENGTH:].abs().max()) > 1e-3
    assert torch.allclose(token_nll(model, ids, method="log", train_length=80), plain, atol=1e-6)


@pytest.mark.parametrize("window", [1, 7, TRAIN_LENGTH])
def test_reencoding_equals_a_loop_over_tokens(window: int) -> None:
    model, ids = make("llama"), tokens(50, batch=2)
    expected = torch.empty(2, 49, dtype=torch.float64)
    for b in range(2):
        for t in range(1, 50):
            with torch.no_grad():
                logits = model(input_ids=ids[b : b + 1, max(0, t - window) : t]).logits[0, -1].double()
            expected[b, t - 1] = torch.logsumexp(logits, -1) - logits[ids[b, t]]
    assert torch.allclose(reencoded_nll(model, ids, window).double(), expected, atol=1e-5)


def test_a_part_of_a_stream_is_reencoded_like_the_whole() -> None:
    """What lets long streams be shared out: the tokens before a part need only be one window."""
    model, ids = make("llama"), tokens(90)
    whole, part = reencoded_nll(model, ids, 16), reencoded_nll(model, ids[:, 40 - 16 : 61], 16)
    assert torch.allclose(part[:, 16:], whole[:, 40:60], atol=1e-5)


def test_windows_are_read_by_themselves() -> None:
    model, ids = make("llama"), tokens(75, batch=2)
    plan = Windows(length=24, stride=10)
    expected = torch.full((2, 74), torch.nan)
    for window in plan.over(75):
        inside = from_logits(model, ids[:, window.start : window.stop])
        expected[:, window.scored - 1 : window.stop - 1] = inside[:, window.scored - window.start - 1 :]
    assert torch.allclose(windowed_nll(model, ids, plan), expected, atol=1e-5)
    # Positions start again in every window, so a law of the length sees windows, not the stream
    assert torch.equal(windowed_nll(model, ids, plan, method="log"), windowed_nll(model, ids, plan))
    longer = Windows(length=60, stride=10)
    assert not torch.allclose(windowed_nll(model, ids, longer, method="log"), windowed_nll(model, ids, longer), atol=1e-3)


def test_the_model_is_left_as_it_was() -> None:
    model = make("llama").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    token_nll(model, tokens(40))
    reencoded_nll(model, tokens(40), 8)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not model.model._forward_hooks
    assert not token_nll(model, tokens(40)).requires_grad


def test_families_that_cap_or_scale_their_logits_are_refused() -> None:
    torch.manual_seed(0)
    granite = tf.GraniteForCausalLM(tf.GraniteConfig(**DECODER_SIZES, logits_scaling=8.0))
    with pytest.raises(lw.BadInput, match="GraniteForCausalLM does more to its logits than one matrix"):
        token_nll(granite, tokens(20))
    plain = tf.GraniteForCausalLM(tf.GraniteConfig(**DECODER_SIZES, logits_scaling=1.0))
    assert torch.allclose(token_nll(plain, tokens(20)), from_logits(plain.eval(), tokens(20)), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "ids", "message"),
    [
        ("t5", tokens(8), "T5ForConditionalGeneration does not tell the next token"),
        ("bert", tokens(8), "BertForMaskedLM does not tell the next token"),
        ("llama", tokens(1), r"at least 2 tokens, not of shape \(1, 1\)"),
        ("llama", tokens(8)[0], r"not of shape \(8,\)"),
    ],
)
def test_bad_input_is_refused(name: str, ids: torch.Tensor, message: str) -> None:
    with pytest.raises(lw.BadInput, match=message):
        token_nll(make(name), ids)


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(lw.BadInput, match="at least 1 token to tell the next one from, not 0"):
        reencoded_nll(make("llama"), tokens(8), 0)
