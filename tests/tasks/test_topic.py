"""Conversations from topic to topic, and the score of answers made by hand."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.errors import BadInput
from lengthwise.tasks import Sample, topic

QUESTION = r"What was the (\w+) topic we talked about\? The \1 topic was"


def read(sample: Sample) -> tuple[list[str], str]:
    """The topics as a reader of the prompt finds them, and which of them is asked for."""
    introduction, *turns, question = sample.prompt.split("\n")
    assert introduction == topic.INTRODUCTION
    assert all(turn.startswith(("USER:", "ASSISTANT:")) for turn in turns)
    asked = re.fullmatch(QUESTION, question)
    assert asked
    return re.findall(r"^USER: Let us talk about (.*)\.$", sample.prompt, re.M), asked[1]


def test_labels_are_many_and_none_contains_another() -> None:
    assert len(topic.LABELS) >= 500
    assert len(set(topic.LABELS)) == len(topic.LABELS)
    # Else an answer that names another topic would be right
    assert not any(f" {one} " in f" {other} " for one, other in itertools.permutations(topic.LABELS, 2))


def test_the_first_topic_is_asked_for(pieces: Any) -> None:
    for sample in topic.samples(pieces, 1000, n=10, seed=0):
        topics, which = read(sample)
        assert which == "first"
        assert topics[0] == sample.target
        assert sample.depth == 0.0


def test_no_topic_comes_twice_and_their_number_grows_with_the_length(pieces: Any) -> None:
    counts = []
    for length in (512, 1000, 4000):
        (sample,) = topic.samples(pieces, length, n=1, seed=0)
        topics, _ = read(sample)
        assert len(set(topics)) == len(topics)
        assert set(topics) <= set(topic.LABELS)
        counts.append(len(topics))
    assert 3 <= counts[0] < counts[1] < counts[2]
    assert 25 <= counts[2] <= 65


def test_every_topic_is_talked_about_and_speakers_take_turns(pieces: Any) -> None:
    for sample in topic.samples(pieces, 2000, n=3, seed=0):
        talks = re.split(r"^USER: Let us talk about .*\n", sample.prompt, flags=re.M)[1:]
        for talk in talks[:-1]:
            speakers = re.findall(r"^(\w+): \S", talk, re.M)
            assert speakers == ["ASSISTANT", "USER", "ASSISTANT", "USER", "ASSISTANT"][: len(speakers)]
            assert speakers


def test_given_labels_are_used_and_nothing_else(pieces: Any) -> None:
    labels = [f"the sound of {number}" for number in range(100)]
    for sample in topic.samples(pieces, 1500, n=3, seed=0, labels=labels):
        topics, _ = read(sample)
        assert set(topics) <= set(labels)
        assert len(topics) > 5


@pytest.mark.parametrize("labels", [["one thing"], ["this", "that", "that", "other things"]])
def test_with_few_labels_every_topic_is_talked_about_longer(labels: list[str], pieces: Any) -> None:
    for sample in topic.samples(pieces, 4000, n=3, seed=0, labels=labels):
        topics, _ = read(sample)
        assert sorted(topics) == sorted(set(labels))
        assert 3920 <= sample.tokens <= 4000
        talks = re.split(r"^USER: Let us talk about .*\n", sample.prompt, flags=re.M)[1:]
        share = 4000 / len(topics)
        assert all(0.7 * share < len(pieces(talk).input_ids) < 1.3 * share for talk in talks)


def test_no_labels_are_refused(pieces: Any) -> None:
    with pytest.raises(BadInput, match="there are no topic labels to choose from"):
        topic.samples(pieces, 1000, n=1, seed=0, labels=[])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(depth=st.floats(0, 1), length=st.integers(300, 1200), seed=st.integers(0, 10**6))
def test_the_topic_at_a_depth_is_asked_for_by_its_place(depth: float, length: int, seed: int, pieces: Any) -> None:
    (sample,) = topic.samples(pieces, length, n=1, seed=seed, depth=depth)
    topics, which = read(sample)
    places = {word: place for place, word in enumerate(topic.ORDINALS)} | {"last": len(topics) - 1}
    assert topics[places[which]] == sample.target
    assert sample.depth == pytest.approx(places[which] / max(1, len(topics) - 1))
    assert abs(sample.depth - depth) <= 0.5 / max(1, len(topics) - 1) + 1e-9 or len(topics) == 1
    assert 0.98 * length <= sample.tokens <= length


def test_the_ends_are_asked_for_as_first_and_last(pieces: Any) -> None:
    for depth, which, place in ((0.0, "first", 0), (1.0, "last", -1)):
        for sample in topic.samples(pieces, 4000, n=2, seed=0, depth=depth):
            topics, asked = read(sample)
            assert (asked, sample.depth) == (which, depth)
            assert topics[place] == sample.target


def test_a_topic_too_far_from_both_ends_to_be_counted_is_refused(pieces: Any) -> None:
    with pytest.raises(
        BadInput, match=r"topic \d+ of \d+ is not one that people ask for by its number; give a depth of 0, of 1"
    ):
        topic.samples(pieces, 4000, n=1, seed=0, depth=0.7)


@pytest.mark.parametrize(
    ("prediction", "target", "score"),
    [
        ("the history of tea", "the history of tea", 1.0),
        ("The first topic was The History of Tea.", "the history of tea", 1.0),
        ("the history, of tea!", "the history of tea", 1.0),
        ("“The history of tea”", "The history of tea", 1.0),
        ("the history\n of  tea", "the history of tea", 1.0),
        ("The effects of a plant based diet", "the effects of a plant-based diet", 0.0),
        ("the effects of a Plant-Based diet", "the effects of a plant-based diet", 1.0),
        ("the history of teapots", "the history of tea", 0.0),
        ("the history of", "the history of tea", 0.0),
        ("the price of tea", "the history of tea", 0.0),
        ("", "the history of tea", 0.0),
        ("...", "...", 0.0),
    ],
)
def test_the_label_is_looked_for_in_the_answer(prediction: str, target: str, score: float) -> None:
    assert topic.score(prediction, target) == score


@settings(max_examples=50, deadline=None, derandomize=True)
@given(before=st.text("abc ,.", max_size=20), after=st.text("xyz ,.", max_size=20), label=st.sampled_from(topic.LABELS))
def test_a_label_between_other_words_is_found(before: str, after: str, label: str) -> None:
    assert topic.score(f"{before} {label.upper()} {after}", label) == 1.0
