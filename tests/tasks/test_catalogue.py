"""What holds for every task."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from lengthwise.errors import BadInput
from lengthwise.tasks import TASKS, Sample
from tests.helpers.sweep import crossed

# The task answer asks questions of the user's own
GENERATED = [name for name in TASKS if name != "answer"]
every_task = pytest.mark.parametrize("name", GENERATED)
# What a line of code should be does not stand in the code before it, and is no part of a sentence
every_search = pytest.mark.parametrize("name", [name for name in GENERATED if name != "code_completion"])
# Of BABILong's kinds and RULER's needles, which share what makes their prompts, those with the longest facts
ALIKE = {f"babilong_qa{k}" for k in (1, 2, 3, 4)} | {f"ruler_niah_{kind}" for kind in ("single_2", "single_3", "multikey_1")}
MAKERS = [name for name in GENERATED if name not in ALIKE]


@pytest.mark.parametrize(("name", "length"), crossed(MAKERS, [512, 1000, 4000], every=2))
def test_prompts_have_the_length_within_two_per_cent_and_never_more(name: str, length: int, any_tokenizer: Any) -> None:
    if name in ("ruler_vt", "ruler_cwe") and length < 2000:
        # Their examples alone are longer in bytes
        length = 2000
    for sample in TASKS[name].samples(any_tokenizer, length, n=4 if length < 2000 else 2, seed=0):
        assert sample.tokens == len(any_tokenizer(sample.prompt).input_ids)
        assert 0.98 * length <= sample.tokens <= length


class Counted:
    """A tokenizer that counts the letters it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.letters = tokenizer, 0

    def __len__(self) -> int:
        return len(self.tokenizer)

    def __call__(self, text: str, **options: Any) -> Any:
        self.letters += len(text)
        return self.tokenizer(text, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "backend_tokenizer":
            raise AttributeError(name)
        return getattr(self.tokenizer, name)


@pytest.mark.parametrize("name", MAKERS)
def test_a_long_prompt_is_counted_exactly_and_tokenised_about_once(name: str, pieces: Any) -> None:
    counted = Counted(pieces)
    # Of code every file has words of its own
    length = 16384 if name.startswith("code_") else 8192
    samples = TASKS[name].samples(counted, length, n=4, seed=0)
    for sample in samples:
        assert sample.tokens == len(pieces(sample.prompt).input_ids)
        assert 0.98 * length <= sample.tokens <= length
    # Before there were word counts it was more than ten times
    assert counted.letters <= 2 * sum(len(sample.prompt) for sample in samples)


@cache
def ten(name: str, pieces: Any) -> list[Sample]:
    return TASKS[name].samples(pieces, 1000, n=10, seed=0)


@every_task
def test_prompts_depend_on_the_seed_alone_and_more_begin_with_the_fewer(name: str, pieces: Any) -> None:
    first, other = (TASKS[name].samples(pieces, 1000, n=3, seed=seed) for seed in (0, 1))
    assert ten(name, pieces)[:3] == first
    assert {sample.prompt for sample in first}.isdisjoint(sample.prompt for sample in other)


@every_task
def test_prompts_of_one_seed_differ(name: str, pieces: Any) -> None:
    samples = ten(name, pieces)
    assert len({sample.prompt for sample in samples}) == 10
    # A story of bAbI has an answer out of a few
    assert len({sample.target for sample in samples}) > (2 if samples[0].labels else 8)


@every_search
def test_a_prompt_holds_its_target_before_the_question_that_ends_it(name: str, pieces: Any) -> None:
    for sample in ten(name, pieces):
        assert sample.prompt.endswith(sample.question)
        for reference in sample.target.split(" | "):
            assert reference in sample.prompt.removesuffix(sample.question)
            assert reference not in sample.question


@every_task
def test_the_target_itself_and_in_a_sentence_is_right_and_fits_the_answer(name: str, pieces: Any) -> None:
    task = TASKS[name]
    for sample in ten(name, pieces):
        for answer in (sample.target, *([] if name == "code_completion" else [f"It is {sample.target}."])):
            assert task.mark(answer, sample) == 1.0
            # RULER gives variables fewer tokens than these small pieces of words need
            assert len(pieces(answer).input_ids) <= task.answer_tokens or name == "ruler_vt"
        assert task.mark("I cannot tell.", sample) == 0.0


@pytest.mark.parametrize("depth", [-0.5, 2.0])
@every_task
def test_a_depth_beyond_the_prompt_is_refused(name: str, depth: float, pieces: Any) -> None:
    with pytest.raises(BadInput, match=f"depth is {depth}; it runs from 0, the beginning, to 1, the end"):
        TASKS[name].samples(pieces, 1000, n=1, seed=0, depth=depth)


@every_search
def test_a_length_without_room_for_the_question_is_refused(name: str, pieces: Any) -> None:
    with pytest.raises(BadInput, match="a prompt of 30 tokens has no room for the question"):
        TASKS[name].samples(pieces, 30, n=1, seed=0)


@pytest.mark.parametrize("answer_tokens", [0, -3, "8"])
def test_an_answer_takes_some_tokens(answer_tokens: Any) -> None:
    with pytest.raises(BadInput, match=f"a task's answer takes at least 1 token, not {answer_tokens!r}"):
        replace(TASKS["passkey"], answer_tokens=answer_tokens)
