"""Likelihoods of tokens, in chunks, in one forward and by fresh readings, against the models' own losses and loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf

import lengthwise as lw
from lengthwise.common.text import shipped_prose
from lengthwise.evaluation import likelihood
from lengthwise.evaluation.likelihood import continuation_nll, language_modelling, reencoded_nll, token_nll, windowed_nll
from lengthwise.tasks.language_modelling import passages
from lengthwise.tasks.perplexity import SlidingWindows
from tests.conftest import DECODER_SIZES, DECODERS, TRAIN_LENGTH, make, tokens
from tests.helpers.sweep import crossed


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


def test_a_model_that_has_diverged_is_told_by_its_likelihoods() -> None:
    model = make("llama")
    model.lm_head.weight.data[:] = torch.nan
    assert bool(token_nll(model, tokens(20)).isnan().all())


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
    plan = SlidingWindows(length=24, stride=10)
    expected = torch.full((2, 74), torch.nan)
    for window in plan.over(75):
        inside = from_logits(model, ids[:, window.start : window.stop])
        expected[:, window.scored - 1 : window.stop - 1] = inside[:, window.scored - window.start - 1 :]
    assert torch.allclose(windowed_nll(model, ids, plan), expected, atol=1e-5)
    # Positions start again in every window, so a law of the length sees windows, not the stream
    assert torch.equal(windowed_nll(model, ids, plan, method="log"), windowed_nll(model, ids, plan))
    longer = SlidingWindows(length=60, stride=10)
    assert not torch.allclose(windowed_nll(model, ids, longer, method="log"), windowed_nll(model, ids, longer), atol=1e-3)


def test_the_model_is_left_as_it_was() -> None:
    model = make("llama").train()
    model.model.layers[1].eval()
    trained = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    token_nll(model, tokens(40))
    reencoded_nll(model, tokens(40), 8)
    assert [module.training for module in model.modules()] == trained
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not model.model._forward_hooks
    assert not token_nll(model, tokens(40)).requires_grad


def test_dropout_is_off_while_a_training_model_is_read() -> None:
    model, ids = make("llama"), tokens(24)
    expected = token_nll(model, ids)
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    model.train()
    assert torch.equal(token_nll(model, ids), expected)
    assert all(module.training for module in model.modules())


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


def told_one_by_one(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """-ln p of each target in a forward of its own, in float64."""
    nll = torch.empty(targets.shape, dtype=torch.float64)
    start = torch.zeros(1, 1, dtype=torch.long)  # T5's decoder begins with token 0
    for b in range(len(inputs)):
        for t in range(targets.shape[1]):
            said, source = targets[b : b + 1, :t], inputs[b : b + 1]
            with torch.no_grad():
                if model.config.is_encoder_decoder:
                    logits = model(input_ids=source, decoder_input_ids=torch.cat([start, said], 1)).logits
                else:
                    logits = model(input_ids=torch.cat([source, said], 1)).logits
            nll[b, t] = -logits[0, -1].double().log_softmax(-1)[targets[b, t]]
    return nll


NAMES = ["t5", "flan-t5", "mt5", "switch", "llama", "gpt_neox"]


@pytest.mark.parametrize(("name", "method"), crossed(NAMES, ["none", "log"], every=2, whole=("t5", "llama")))
def test_a_continuation_is_told_as_token_by_token(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two cases at a time, which does not divide them evenly
    monkeypatch.setattr(likelihood, "TOKENS_AT_ONCE", 2 * 66)
    # In float64: the rounding of float32 logits differs from CPU to CPU
    model, inputs, targets = make(name).double(), tokens(60, batch=3), tokens(6, batch=3, seed=1)
    nll = continuation_nll(model, inputs, targets, skipped=1, method=method)
    assert nll.shape == (3, 5)
    with lw.extend(model, method):
        expected = told_one_by_one(model, inputs, targets)
    assert torch.allclose(nll.double(), expected[:, 1:], atol=1e-5)


def test_umt5_is_told_alike_or_refused() -> None:
    model, inputs, targets = make("umt5"), tokens(60), tokens(6, seed=1)
    if tf.__version__ == "5.15.0":
        with pytest.raises(lw.BadInput, match="umT5 take a newer transformers"):
            continuation_nll(model, inputs, targets)
    else:
        assert torch.allclose(
            continuation_nll(model, inputs, targets).double(), told_one_by_one(model, inputs, targets), atol=1e-5
        )


def _leaking(_module: Any, _inputs: Any, output: Any) -> None:
    """Each position's state takes a share of all the others', also of those after it."""
    output[0].add_(output[0].mean(1, keepdim=True))


def test_a_decoder_that_sees_what_it_should_tell_is_refused() -> None:
    model = make("t5")
    model.decoder.register_forward_hook(_leaking)
    with pytest.raises(lw.BadInput, match="the decoder of this T5ForConditionalGeneration sees the tokens that it should tell"):
        continuation_nll(model, tokens(60), tokens(6, seed=1))
    # Of a single token there is nothing to be seen
    assert continuation_nll(model, tokens(60), tokens(1, seed=1)).shape == (1, 1)


def test_roundings_of_a_decoder_are_no_sight_of_what_it_should_tell() -> None:
    factors = iter([1.0, 1 + 1e-5])

    def round_otherwise(_module: Any, _inputs: Any, output: Any) -> None:
        # As experts do that are given other tokens beside these
        output[0].mul_(next(factors))

    model = make("t5")
    model.decoder.register_forward_hook(round_otherwise)
    assert continuation_nll(model, tokens(60), tokens(6, seed=1)).shape == (1, 6)


def test_a_decoders_continuation_is_the_end_of_its_stream() -> None:
    model, ids = make("llama"), tokens(50, batch=2)
    assert torch.allclose(continuation_nll(model, ids[:, :40], ids[:, 40:]), token_nll(model, ids)[:, 39:], atol=1e-5)


@pytest.mark.parametrize("name", ["t5", "llama"])
def test_language_modelling_asks_the_same_continuations_at_every_length(name: str) -> None:
    model, tokenizer, text = make(name), tf.ByT5Tokenizer(), shipped_prose()[:3000]
    options = {"cases": 3, "continuation": 8}
    plain = language_modelling(model, tokenizer, text, [64, TRAIN_LENGTH], **options)
    sharper = language_modelling(model, tokenizer, text, [64, TRAIN_LENGTH], **options, method="log")
    assert [*plain] == [TRAIN_LENGTH, 64]
    assert {nll.shape for nll in plain.values()} == {(3, 8)}
    assert torch.allclose(plain[TRAIN_LENGTH], sharper[TRAIN_LENGTH], atol=1e-6)
    assert not torch.allclose(plain[64], sharper[64], atol=1e-4)
    assert torch.equal(language_modelling(model, tokenizer, text, [64], **options)[64], plain[64])
    ends = tokenizer.convert_tokens_to_ids(["<extra_id_0>", "</s>"])
    before, special = (62, ends) if name == "t5" else (56, [])
    texts = passages(tokenizer, text, before, 8, cases=3)
    inputs = torch.cat([texts[:, :before], torch.tensor([special] * 3, dtype=torch.long)], 1)
    targets = torch.cat([torch.tensor([special[:1]] * 3, dtype=torch.long), texts[:, before:]], 1)
    expected = told_one_by_one(model, inputs, targets)[:, len(special[:1]) :]
    assert torch.allclose(plain[64].double(), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "targets", "skipped", "message"),
    [
        (tokens(8), tokens(8, batch=2), 0, r"of the same cases, not of shapes \(1, 8\) and \(2, 8\)"),
        (tokens(8)[0], tokens(8), 0, r"not of shapes \(8,\) and \(1, 8\)"),
        (tokens(8), tokens(3), 3, "must leave at least one of 3 targets, not be 3"),
    ],
)
def test_continuations_that_are_none_are_refused(
    inputs: torch.Tensor, targets: torch.Tensor, skipped: int, message: str
) -> None:
    with pytest.raises(lw.BadInput, match=message):
        continuation_nll(make("t5"), inputs, targets, skipped=skipped)


def test_models_that_tell_nothing_and_lengths_that_are_none_are_refused() -> None:
    with pytest.raises(lw.BadInput, match="BertForMaskedLM does not tell the next token"):
        continuation_nll(make("bert"), tokens(8), tokens(4))
    with pytest.raises(lw.BadInput, match="give at least one length"):
        language_modelling(make("t5"), tf.ByT5Tokenizer(), "text", [])
