"""Answers: greedy, of encoder-decoders and decoders, alone and in batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.sweep.generate import answers, check_answers, padded
from tests.answering import answering
from tests.conftest import make, tokens


def by_hand(model: Any, prompt: list[int], most: int) -> str:
    """The likeliest token, again and again, without a cache."""
    said = [model.config.decoder_start_token_id] if model.config.is_encoder_decoder else list(prompt)
    first = len(said)
    for _ in range(most):
        ids = torch.tensor([said])
        inputs = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": ids} if first == 1 else {"input_ids": ids}
        with torch.no_grad():
            said.append(int(model(**inputs).logits[0, -1].argmax()))
    return ByT5Tokenizer().decode(said[first:], skip_special_tokens=True)


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_an_answer_is_the_greedy_one_without_the_prompt(family: str) -> None:
    model = answering(family)
    for seed in range(3):
        prompt = tokens(40, seed=seed)[0].tolist()
        (answer,) = answers(model, ByT5Tokenizer(), [prompt], 6)
        assert answer == by_hand(model, prompt, 6)
        assert answer.isdigit()


@pytest.mark.parametrize("method", ["none", "constant:tau=0.5"])
@pytest.mark.parametrize("family", ["t5", "llama"])
def test_a_padded_batch_answers_what_single_prompts_do(family: str, method: str) -> None:
    """Prompts under and above the training length, of different lengths."""
    model, tokenizer = answering(family), ByT5Tokenizer()
    prompts = [tokens(length, seed=length)[0].tolist() for length in (300, 180, 290, 40)]
    with lw.extend(model, method):
        together = answers(model, tokenizer, prompts, 8)
        single = [answers(model, tokenizer, [prompt], 8)[0] for prompt in prompts]
    assert together == single
    assert len(set(together)) >= 3


def test_a_checkpoint_cannot_bend_greedy_answers() -> None:
    model, tokenizer = answering("llama"), ByT5Tokenizer()
    prompt = tokens(40)[0].tolist()
    plain = answers(model, tokenizer, [prompt], 12)
    bent = {"do_sample": True, "temperature": 9.0, "num_beams": 3, "repetition_penalty": 9.0, "no_repeat_ngram_size": 1}
    model.generation_config.update(**bent)
    assert answers(model, tokenizer, [prompt], 12) == plain


def test_a_tokenizer_without_padding_pads_with_its_end() -> None:
    model, tokenizer = answering("llama", pad_token_id=None), ByT5Tokenizer()
    prompts = [tokens(length, seed=length)[0].tolist() for length in (60, 40)]
    expected = answers(model, tokenizer, prompts, 8)
    tokenizer.pad_token = None
    assert tokenizer.pad_token_id is None
    assert answers(model, tokenizer, prompts, 8) == expected


def test_an_answer_ends_at_the_end_token() -> None:
    model, tokenizer = answering("llama"), ByT5Tokenizer()
    (whole,) = answers(model, tokenizer, [tokens(40)[0].tolist()], 12)
    model.generation_config.eos_token_id = ord(whole[3]) + 3
    (answer,) = answers(model, tokenizer, [tokens(40)[0].tolist()], 12)
    assert whole.startswith(answer)
    assert len(answer) <= 4 < len(whole)


def test_a_model_in_training_answers_as_in_evaluation_and_stays_in_training() -> None:
    model, tokenizer = answering("t5", dropout_rate=0.5), ByT5Tokenizer()
    prompt = tokens(40)[0].tolist()
    expected = answers(model, tokenizer, [prompt], 12)
    assert answers(model.train(), tokenizer, [prompt], 12) == expected
    assert model.training


def test_padding_goes_left_or_right() -> None:
    ids, mask = padded([[5, 6], [7]], 0, left=True)
    assert (ids.tolist(), mask.tolist()) == ([[5, 6], [0, 7]], [[1, 1], [0, 1]])
    ids, mask = padded([[5, 6], [7]], 0, left=False)
    assert (ids.tolist(), mask.tolist()) == ([[5, 6], [7, 0]], [[1, 1], [1, 0]])


@pytest.mark.parametrize("family", ["t5 encoder", "bert"])
def test_models_that_write_nothing_are_refused(family: str) -> None:
    with pytest.raises(lw.BadInput, match="cannot write answers; give an encoder-decoder or a decoder"):
        check_answers(make(family))


def test_out_of_memory_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    model = answering("t5")

    def exhausted(**_: Any) -> Any:
        raise torch.OutOfMemoryError("a page of figures")

    monkeypatch.setattr(model, "generate", exhausted)
    with pytest.raises(lw.BadInput, match="out of memory on a batch of 1x40 tokens; give a smaller --batch-tokens"):
        answers(model, ByT5Tokenizer(), [tokens(40)[0].tolist()], 4)
