"""The truncation baseline reads the end of the prompt, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.evaluation.sweep.generate import truncated_prompt
from lengthwise.tasks import Sample


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
