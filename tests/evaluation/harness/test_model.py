"""lengthwise as a model of lm-evaluation-harness: its answers are those of the model under the method, and nothing is cut."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from tests.conftest import make
from tests.extended import alignment
from tests.helpers.answering import TRAIN_LENGTH, answering, saved
from tests.helpers.own_code import METHOD as OWN_METHOD

pytest.importorskip("lm_eval", reason="lm-eval is not installed; pip install 'lengthwise[lm-eval]'")
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

from lengthwise.evaluation.harness.model import LengthwiseLM
from lengthwise.evaluation.sweep.generate import greedy_answers

TOKENIZER = ByT5Tokenizer()
METHOD = "constant:tau=0.7"
SHORT, LONG = "A text of some length." * 3, "A text of another length." * (TRAIN_LENGTH // 16)
OF_ANOTHER = replace(alignment(None), model=model_fingerprint(anatomy_of(make("llama"))))
both = pytest.mark.parametrize("family", ["llama", "t5"])


def lm_of(family: str, **settings: Any) -> Any:
    # ByT5's tokenizer would end every context with </s>, which a decoder's does not
    bare = {"add_bos_token": False} if family == "llama" else {}
    return LengthwiseLM(answering(family), tokenizer=TOKENIZER, **bare, **settings)


def asked(kind: str, *arguments: Any) -> list[Any]:
    return [Instance(kind, {}, one, at) for at, one in enumerate(arguments)]


def likelihood(model: Any, context: str, said: str, method: str) -> float:
    """The same from one forward, position by position in float64."""
    before, after = (TOKENIZER(text, add_special_tokens=False).input_ids for text in (context, said))
    with lw.extend(model, method), torch.no_grad():
        if model.config.is_encoder_decoder:
            read = torch.tensor([[*before, TOKENIZER.eos_token_id]])
            start = [model.config.decoder_start_token_id, *after[:-1]]
            logits = model(input_ids=read, decoder_input_ids=torch.tensor([start])).logits[0].double()
        else:
            logits = model(input_ids=torch.tensor([before + after])).logits[0, len(before) - 1 : -1].double()
    return sum(float(row[token] - torch.logsumexp(row, 0)) for row, token in zip(logits, after, strict=True))


def test_the_registry_of_the_harness_knows_it() -> None:
    assert get_model("lengthwise") is LengthwiseLM


@pytest.mark.parametrize("method", ["clex", "ntk:factor=2,dynamic=true"])
def test_frequencies_of_the_length_are_refused_for_several_at_a_time(method: str) -> None:
    with pytest.raises(BadInput, match=r"has frequencies for the length of its input, .*; give batch_size=1$"):
        lm_of("llama", method=method, batch_size=2)
    lm_of("llama", method="ntk:factor=2", batch_size=2)
    # Of one token, which is not read itself: the length that counts is that of the context
    pairs = [(SHORT, "1"), (LONG, "3")]
    lm = lm_of("llama", method=method)
    found = lm.loglikelihood(asked("loglikelihood", *pairs))
    for (score, _), (context, said) in zip(found, pairs, strict=True):
        ids = TOKENIZER(context, add_special_tokens=False, return_tensors="pt").input_ids
        with lw.extend(lm.model, method), torch.no_grad():
            last = lm.model(input_ids=ids).logits[0, -1].double().log_softmax(-1)
        assert score == pytest.approx(float(last[ord(said) + 3]), abs=1e-3)


@both
def test_likelihoods_are_those_of_the_whole_input_under_the_method(family: str) -> None:
    pairs = [(SHORT, "12"), (LONG, "345"), (LONG + LONG, "6")]
    found = lm_of(family, method=METHOD).loglikelihood(asked("loglikelihood", *pairs))
    plain = lm_of(family).loglikelihood(asked("loglikelihood", *pairs))
    model = answering(family)
    for (context, said), (mine, _), (stock, _) in zip(pairs, found, plain, strict=True):
        assert mine == pytest.approx(likelihood(model, context, said, METHOD), rel=1e-4)
        assert stock == pytest.approx(likelihood(model, context, said, "none"), rel=1e-4)
        assert mine != pytest.approx(stock, rel=1e-3)


@both
def test_answers_are_those_of_the_sweep(family: str) -> None:
    prompts = [SHORT, LONG, LONG + LONG]
    settings = {"until": ["never"], "max_gen_toks": 6, "do_sample": False}
    lm = lm_of(family, method=METHOD)
    found = lm.generate_until(asked("generate_until", *((prompt, settings) for prompt in prompts)))
    with lw.extend(lm.model, METHOD):
        read = [TOKENIZER(prompt, add_special_tokens=family == "t5").input_ids for prompt in prompts]
        expected = [greedy_answers(lm.model, TOKENIZER, [ids], 6)[0] for ids in read]
    assert found == expected
    assert all(len(answer) == 6 for answer in found)


@both
@pytest.mark.parametrize("method", ["infoscale", "log"])
def test_a_batch_of_several_inputs_changes_nothing(family: str, method: str) -> None:
    pairs = [(SHORT, "12"), (LONG, "345"), (LONG + LONG, "67")]
    settings = {"until": [], "max_gen_toks": 4, "do_sample": False}
    one, three = (lm_of(family, method=method, batch_size=size) for size in (1, 3))
    alone, together = (lm.loglikelihood(asked("loglikelihood", *pairs)) for lm in (one, three))
    assert [value for value, _ in together] == pytest.approx([value for value, _ in alone], rel=1e-4)
    prompts = [(context, settings) for context, _ in pairs]
    assert one.generate_until(asked("generate_until", *prompts)) == three.generate_until(asked("generate_until", *prompts))


def test_the_harness_does_not_warn_of_what_we_do_for_the_user() -> None:
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("lm_eval.models.huggingface")
    log.addHandler(handler)
    try:
        lm_of("llama")
    finally:
        log.removeHandler(handler)
    assert not heard


def test_a_whole_document_is_one_window() -> None:
    text = LONG + LONG
    [found] = lm_of("llama", method=METHOD).loglikelihood_rolling(asked("loglikelihood_rolling", (text,)))
    ids = [TOKENIZER.eos_token_id, *TOKENIZER(text, add_special_tokens=False).input_ids]
    nll = lw.token_nll(answering("llama"), torch.tensor([ids]), method=METHOD)
    assert found == pytest.approx(-float(nll.double().sum()), rel=1e-4)


def test_max_length_cuts_on_the_left() -> None:
    cut = lm_of("llama", method=METHOD, max_length=100).loglikelihood(asked("loglikelihood", (LONG, "345")))
    # Of 100 tokens read, two are the answer's: its last one is told, not read
    whole = lm_of("llama", method=METHOD).loglikelihood(asked("loglikelihood", (LONG[-98:], "345")))
    assert cut[0][0] == pytest.approx(whole[0][0], rel=1e-5)


@both
def test_the_model_is_afterwards_what_it_was_even_after_a_failure(family: str) -> None:
    lm = lm_of(family, method=METHOD)
    implementations = [getattr(m.config, "_attn_implementation", None) for m in lm.model.modules() if hasattr(m, "config")]
    before = likelihood(lm.model, LONG, "1", "none")
    with pytest.raises((TypeError, AttributeError, ValueError)):
        lm.loglikelihood([None])
    lm.loglikelihood(asked("loglikelihood", (LONG, "1")))
    assert likelihood(lm.model, LONG, "1", "none") == before
    now = [getattr(m.config, "_attn_implementation", None) for m in lm.model.modules() if hasattr(m, "config")]
    assert now == implementations


def test_models_load_by_directory_and_by_name(tmp_path: Path) -> None:
    folder = saved(answering("t5"), tmp_path / "t5")
    lm = LengthwiseLM.create_from_arg_obj({"pretrained": str(folder), "method": "log"}, {"device": "cuda:0", "batch_size": 2})
    pair = (LONG, "345")
    assert lm.loglikelihood(asked("loglikelihood", pair))[0][0] == pytest.approx(
        likelihood(answering("t5"), *pair, "log"), rel=1e-4
    )
    assert LengthwiseLM(method="log").backend == "seq2seq"  # embedded


def test_a_method_of_ones_own_is_a_method_here_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_METHOD)
    given = f"pretrained={saved(answering('t5'), tmp_path / 't5')},method={tmp_path}/mine.py:Sharper:power=2"
    lm = LengthwiseLM.create_from_arg_string(given, {"device": "cpu"})
    expected = likelihood(answering("t5"), LONG, "345", f"{tmp_path}/mine.py:Sharper:power=2")
    (tmp_path / "mine.py").unlink()
    assert lm.loglikelihood(asked("loglikelihood", (LONG, "345")))[0][0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"metod": "log"}, "the model 'lengthwise' takes no argument 'metod'; did you mean 'method'"),
        ({"trust_remote_code": True}, "takes no argument 'trust_remote_code'"),
        ({"method": "logg"}, "logg"),
        # Before anything is loaded
        ({"method": "logg", "pretrained": "/nowhere", "tokenizer": None}, "logg"),
        ({"method": OF_ANOTHER}, "made for another model: its layers is 3"),
        ({"batch_size": "auto"}, "batch_size=auto tries batches of the longest inputs; say how long they are"),
        ({"tokenizer": None}, "a loaded model needs its tokenizer beside it"),
        ({"pretrained": "embedded"}, "a tokenizer goes with a loaded model; embedded brings its own"),
        ({"pretrained": make("bert")}, "BertForMaskedLM cannot write answers"),
    ],
)
def test_what_it_cannot_take_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        LengthwiseLM(**{"pretrained": answering("llama"), "tokenizer": TOKENIZER, **settings})


def test_an_alignment_of_another_model_is_taken_by_force() -> None:
    lm = lm_of("llama", method=OF_ANOTHER, train_length=32, force=True)
    forced, plain = (model.loglikelihood(asked("loglikelihood", (LONG[:100], "1"))) for model in (lm, lm_of("llama")))
    assert forced != plain
