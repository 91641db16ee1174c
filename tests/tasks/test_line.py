"""Line prompts under a tokenizer of bytes, and the score of answers made by hand."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks import TASKS, Sample, line

TOKENIZER = ByT5Tokenizer()


def read(sample: Sample) -> tuple[dict[str, str], str]:
    """The numbers by name, as a reader of the prompt finds them, and the name asked for."""
    introduction, *lines, question = sample.prompt.split("\n")
    assert introduction == line.INTRODUCTION
    found = [re.fullmatch(r"line ([a-z-]+): REGISTER_CONTENT is <(\d+)>", text) for text in lines]
    pairs = [(match[1], match[2]) for match in found if match]
    assert len(pairs) == len(lines)
    assert len(dict(pairs)) == len(lines), "a name stands twice"
    asked = re.fullmatch(r"Which number is on line (\S+)\? The number of line \1 is", question)
    assert asked
    return dict(pairs), asked[1]


NAMES = (line.ADJECTIVES, line.NOUNS)


def test_the_line_asked_for_stands_once_in_the_prompt_with_the_target() -> None:
    for sample in line.samples(TOKENIZER, 5000, n=5, seed=0):
        numbers, asked = read(sample)
        assert numbers[asked] == sample.target
        assert all(1 <= int(number) <= 50000 for number in numbers.values())


def test_depth_zero_and_one_put_the_line_at_the_ends() -> None:
    for depth, place in ((0.0, 0), (1.0, -1)):
        for sample in line.samples(TOKENIZER, 1000, n=3, seed=0, depth=depth):
            numbers, asked = read(sample)
            assert [*numbers][place] == asked
            assert sample.depth == depth


def test_the_line_stands_where_the_sample_says() -> None:
    samples = line.samples(TOKENIZER, 5000, n=10, seed=0)
    for sample in samples:
        numbers, asked = read(sample)
        assert [*numbers].index(asked) / (len(numbers) - 1) == pytest.approx(sample.depth, abs=0.01)
    assert len({sample.depth for sample in samples}) == 10


def test_given_words_make_the_names() -> None:
    first, second = ["red", "blue", "blue"], ["cup", "fork"]
    for sample in line.samples(TOKENIZER, 3000, n=3, seed=0, names=(first, second)):
        numbers, asked = read(sample)
        assert len(numbers) > 12, "more than there are names of two and three words"
        assert numbers[asked] == sample.target
        assert all(name.split("-")[0] in first and {*name.split("-")[1:]} <= {*second} for name in numbers)


def test_the_default_words_are_those_of_the_package() -> None:
    default = line.samples(TOKENIZER, 1000, n=2, seed=0)
    assert default == line.samples(TOKENIZER, 1000, n=2, seed=0, names=(line.ADJECTIVES, line.NOUNS))
    words = {word for sample in default for name in read(sample)[0] for word in name.split("-")}
    assert words <= {*line.ADJECTIVES, *line.NOUNS}


@pytest.mark.parametrize("names", [([], ["cup"]), (["red"], [])])
def test_names_without_words_are_refused(names: line.Names) -> None:
    with pytest.raises(BadInput, match="at least one word in each of their two lists"):
        line.samples(TOKENIZER, 1000, n=1, seed=0, names=names)


def test_lines_do_not_run_out_and_no_name_comes_twice() -> None:
    pairs = len(set(line.ADJECTIVES)) * len(set(line.NOUNS))
    assert pairs == len(line.ADJECTIVES) * len(line.NOUNS)
    wanted = 4 * pairs + 1
    assert wanted > 3000
    names = [name for name, _, _ in itertools.islice(line._lines(random.Random(0), NAMES, line.WORDING[1]), wanted)]
    assert len(names) == wanted
    assert len(set(names)) == wanted


def test_a_record_may_have_other_words() -> None:
    wording = ("Numbers:", "{name} has {number}.", "What has {name}?")
    (sample,) = line.samples(ByT5Tokenizer(), 300, 1, 0, wording=wording)
    first, *lines, question = sample.prompt.split("\n")
    name = question.removeprefix("What has ").removesuffix("?")
    assert (first, sample.question) == ("Numbers:", question)
    assert f"{name} has {sample.target}." in lines


def test_the_text_of_a_line_says_its_name_and_number() -> None:
    for name, number, text in itertools.islice(line._lines(random.Random(0), NAMES, line.WORDING[1]), 20):
        assert text == f"line {name}: REGISTER_CONTENT is <{number}>"


@pytest.mark.parametrize(
    ("prediction", "score"),
    [
        ("123", 1.0),
        ("<123>.", 1.0),
        ("Line 7 holds 123", 1.0),
        ("The content of line amber-door is <123>", 1.0),
        ("not 456 but 123", 1.0),
        ("123, I am 90 % sure", 0.0),
        ("0123", 0.0),
        ("123.0", 0.0),
        ("1234", 0.0),
        ("I do not know", 0.0),
        ("", 0.0),
    ],
)
def test_the_last_integer_is_scored(prediction: str, score: float) -> None:
    assert line.score(prediction, "123") == score
    assert TASKS["line"].score(prediction, "123") == score


def test_a_number_with_a_thousands_separator_is_two_numbers() -> None:
    assert line.score("It is 12,345.", "12345") == 0.0
    assert line.score("It is 12,345.", "345") == 1.0
