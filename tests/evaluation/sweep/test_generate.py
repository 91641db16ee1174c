"""Answers: greedy, of encoder-decoders and decoders, alone and in batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.evaluation.hedge import Hedge
from lengthwise.evaluation.sweep.generate import greedy_answers, pad_rows, truncated_prompt
from lengthwise.tasks import Sample
from tests.conftest import tokens
from tests.helpers.answering import answering
from tests.helpers.sweep import crossed


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
        (answer,) = greedy_answers(model, ByT5Tokenizer(), [prompt], 6)
        assert answer == by_hand(model, prompt, 6)
        assert answer.isdigit()


@pytest.mark.parametrize("method", ["none", "constant:tau=0.5"])
@pytest.mark.parametrize("family", ["t5", "llama"])
def test_a_padded_batch_answers_what_single_prompts_do(family: str, method: str) -> None:
    """Prompts under and above the training length, of different lengths."""
    model, tokenizer = answering(family), ByT5Tokenizer()
    prompts = [tokens(length, seed=length)[0].tolist() for length in (300, 180, 290, 40)]
    with lw.extend(model, method):
        together = greedy_answers(model, tokenizer, prompts, 8)
        single = [greedy_answers(model, tokenizer, [prompt], 8)[0] for prompt in prompts]
    assert together == single
    assert len(set(together)) >= 3


# What a checkpoint's generation_config may hold; `most` is 12 below, and a digit is what the models like to say
DIGITS = [ord(digit) + 3 for digit in "0123456789"]
BENDS: list[dict[str, Any]] = [
    {"do_sample": True, "temperature": 9.0, "num_beams": 3, "repetition_penalty": 9.0, "no_repeat_ngram_size": 1},
    {"min_new_tokens": 12},
    {"suppress_tokens": DIGITS[:5], "begin_suppress_tokens": DIGITS[5:]},
    {"bad_words_ids": [[digit] for digit in DIGITS[::2]]},
    {"sequence_bias": [[[digit], -99.0] for digit in DIGITS[1::2]]},
    {"forced_bos_token_id": ord("x") + 3, "forced_eos_token_id": ord("y") + 3, "exponential_decay_length_penalty": (1, 9.0)},
    {"guidance_scale": 2.0},
    {"prompt_lookup_num_tokens": 3, "max_time": 1e-9},
    {"return_dict_in_generate": True, "output_scores": True, "output_attentions": True},
]


@pytest.mark.parametrize(("bent", "family", "hedged"), crossed(BENDS, ["t5", "llama"], [False, True], every=2))
def test_a_checkpoint_cannot_bend_greedy_answers(family: str, bent: dict[str, Any], hedged: bool) -> None:
    model, tokenizer = answering(family), ByT5Tokenizer()
    prompts = [tokens(length, seed=length)[0].tolist() for length in (40, 60)]
    # A digit that ends the first answer early, for what would put the end off
    (first,) = greedy_answers(model, tokenizer, prompts[:1], 12)
    model.generation_config.eos_token_id = ord(first[3]) + 3

    def said() -> list[str]:
        ends = [prompt[-20:] for prompt in prompts]
        return greedy_answers(model, tokenizer, prompts, 12, Hedge(model, prompts, ends) if hedged else None)

    plain = said()
    own = model.generation_config
    own.update(**bent)
    before = own.to_dict()
    assert said() == plain
    assert model.generation_config is own
    assert own.to_dict() == before


def test_what_an_architecture_needs_of_its_generation_config_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = answering("t5"), ByT5Tokenizer()
    # The last is a name of some architecture's own
    needed = {"decoder_start_token_id": 7, "bos_token_id": 8, "use_cache": False, "languages": {"fr": 9}}
    vars(model.generation_config).update(needed)
    generate, seen = model.generate, []

    def spy(**inputs: Any) -> Any:
        seen.append(model.generation_config.to_dict())
        return generate(**inputs)

    monkeypatch.setattr(model, "generate", spy)
    greedy_answers(model, tokenizer, [tokens(40)[0].tolist()], 4)
    assert {name: seen[0].get(name) for name in needed} == needed


def test_a_tokenizer_without_padding_pads_with_its_end() -> None:
    model, tokenizer = answering("llama", pad_token_id=None), ByT5Tokenizer()
    prompts = [tokens(length, seed=length)[0].tolist() for length in (60, 40)]
    expected = greedy_answers(model, tokenizer, prompts, 8)
    tokenizer.pad_token = None
    assert tokenizer.pad_token_id is None
    assert greedy_answers(model, tokenizer, prompts, 8) == expected


def test_an_answer_ends_at_the_end_token() -> None:
    model, tokenizer = answering("llama"), ByT5Tokenizer()
    (whole,) = greedy_answers(model, tokenizer, [tokens(40)[0].tolist()], 12)
    model.generation_config.eos_token_id = ord(whole[3]) + 3
    (answer,) = greedy_answers(model, tokenizer, [tokens(40)[0].tolist()], 12)
    assert whole.startswith(answer)
    assert len(answer) <= 4 < len(whole)


def test_a_model_in_training_answers_as_in_evaluation_and_stays_in_training() -> None:
    model, tokenizer = answering("t5", dropout_rate=0.5), ByT5Tokenizer()
    prompt = tokens(40)[0].tolist()
    expected = greedy_answers(model, tokenizer, [prompt], 12)
    model.train().decoder.eval()
    before = [module.training for module in model.modules()]
    assert greedy_answers(model, tokenizer, [prompt], 12) == expected
    assert [module.training for module in model.modules()] == before


def test_padding_goes_left_or_right() -> None:
    ids, mask = pad_rows([[5, 6], [7]], 0, left=True)
    assert (ids.tolist(), mask.tolist()) == ([[5, 6], [0, 7]], [[1, 1], [0, 1]])
    ids, mask = pad_rows([[5, 6], [7]], 0, left=False)
    assert (ids.tolist(), mask.tolist()) == ([[5, 6], [7, 0]], [[1, 1], [1, 0]])


def test_padding_that_the_model_does_not_know_is_not_used() -> None:
    model, tokenizer = answering("llama"), ByT5Tokenizer()
    prompts = [tokens(length, seed=length)[0].tolist() for length in (40, 60)]
    said = greedy_answers(model, tokenizer, prompts, 4)
    tokenizer.add_special_tokens({"pad_token": "<no row>"})
    assert tokenizer.pad_token_id >= model.get_input_embeddings().num_embeddings
    assert greedy_answers(model, tokenizer, prompts, 4) == said


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried ..."), RuntimeError("DefaultCPUAllocator: can't ..."), MemoryError()],
    ids=lambda error: type(error).__name__,
)
def test_out_of_memory_is_said_in_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    model = answering("t5")

    def exhausted(**_: Any) -> Any:
        raise error

    monkeypatch.setattr(model, "generate", exhausted)
    own = model.generation_config
    with pytest.raises(
        lw.BadInput, match="not enough memory for a batch of 1x40 tokens; give a smaller --batch-tokens with another --out"
    ):
        greedy_answers(model, ByT5Tokenizer(), [tokens(40)[0].tolist()], 4)
    assert model.generation_config is own


class Bracketed:
    """Characters between a beginning and an end, as BERT's tokenizer has them."""

    all_special_ids = (1, 2, 2)

    def __call__(self, text: str, add_special_tokens: bool = True, verbose: bool = True) -> Any:
        ids = [ord(letter) for letter in text]
        return type("Encoding", (), {"input_ids": [1, *ids, 2] if add_special_tokens else ids})


def sample(prompt: str, question: str = "why?") -> Sample:
    return Sample(prompt, "5", len(prompt), None, question)


def test_the_last_tokens_are_kept_between_the_special_ones() -> None:
    ids = truncated_prompt(Bracketed(), sample("abcdefgh why?"), 8)
    assert ids == [1, *map(ord, "h why?"), 2]
    tokenizer = ByT5Tokenizer()
    ids = truncated_prompt(tokenizer, sample("abcdefgh why?"), 8)
    assert len(ids) == 8
    assert tokenizer.decode(ids) == "gh why?</s>"


@pytest.mark.parametrize("length", [15, 16, 100])
def test_a_prompt_that_fits_is_left_as_it_is(length: int) -> None:
    assert truncated_prompt(Bracketed(), sample("abcdefgh why?"), length) == [1, *map(ord, "abcdefgh why?"), 2]


def test_a_question_that_does_not_fit_is_refused() -> None:
    assert truncated_prompt(Bracketed(), sample("abc why?"), 6) == [1, *map(ord, "why?"), 2]
    with pytest.raises(BadInput, match="truncate keeps the last 5 tokens, 3 of them text, but the question alone takes 4"):
        truncated_prompt(Bracketed(), sample("abc why?"), 5)
