"""Our own stories, told again by a reader of their sentences who knows nothing of how they were made."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from lengthwise.common.text import shipped_prose
from lengthwise.tasks.material import stories
from lengthwise.tasks.material.babi import Story

STORIES = 300


def made(kind: str) -> Iterator[Story]:
    return (stories.story(kind, random.Random(seed)) for seed in range(STORIES))


def either(words: tuple[str, ...]) -> str:
    return f"({'|'.join(words)})"


def events(story: Story) -> list[tuple[str, ...]]:
    """(kind, words) of each fact."""
    shapes = {
        "move": rf"(\w+) {either(stories.MOVES)} the (\w+)\.",
        "give": rf"(\w+) {either(stories.GIVES)} the (\w+) to (\w+)\.",
        "take": rf"(\w+) {either(stories.TAKES)} the (\w+)\.",
        "drop": rf"(\w+) {either(stories.DROPS)} the (\w+)\.",
    }
    found = []
    for fact in story.facts:
        matches = {kind: re.fullmatch(shape, fact) for kind, shape in shapes.items()}
        kind, match = next((kind, match) for kind, match in matches.items() if match)
        person, _, *rest = match.groups()
        found.append((kind, person, *rest))
    return found


def wanderings(story: Story) -> dict[str, list[str]]:
    """Every place each thing was at, in order; taking what somebody else holds, or what lies elsewhere, is refused."""
    where: dict[str, str] = {}
    holds: dict[str, str] = {}
    trail: dict[str, list[str]] = {}
    for kind, person, what in events(story):
        if kind == "move":
            assert where.get(person) != what
            where[person] = what
            for thing, holder in holds.items():
                if holder == person:
                    trail[thing].append(what)
        elif kind == "take":
            assert what not in holds
            assert trail.setdefault(what, [where[person]])[-1] == where[person]
            holds[what] = person
        else:
            assert holds.pop(what) == person
    return trail


def test_qa1_asks_for_the_last_place_of_somebody() -> None:
    for story in made("qa1"):
        person = re.fullmatch(r"Where is (\w+)\?", story.question).group(1)
        moves = [(at, place) for at, (_, who, place) in enumerate(events(story)) if who == person]
        assert ((moves[-1][0],), moves[-1][1]) == (story.support, story.answer)


def test_qa2_asks_for_the_last_place_of_a_thing() -> None:
    for story in made("qa2"):
        thing = re.fullmatch(r"Where is the (\w+)\?", story.question).group(1)
        assert wanderings(story)[thing][-1] == story.answer
        touched, moved = (events(story)[at] for at in story.support)
        assert touched[0] in ("take", "drop")
        assert (touched[2], moved) == (thing, ("move", touched[1], story.answer))


def test_qa3_asks_for_the_place_before_the_last_and_names_it_once() -> None:
    for story in made("qa3"):
        thing, place = re.fullmatch(r"Where was the (\w+) before the (\w+)\?", story.question).groups()
        trail = wanderings(story)[thing]
        assert trail[-2:] == [story.answer, place]
        assert trail.count(place) == 1
        taken, first, second = (events(story)[at] for at in story.support)
        person = taken[1]
        assert taken == ("take", person, thing)
        assert (first, second) == (("move", person, story.answer), ("move", person, place))


def test_qa4_has_one_answer_on_the_map() -> None:
    steps = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
    for story in made("qa4"):
        relations = [re.fullmatch(r"The (\w+) is (\w+) of the (\w+)\.", fact).groups() for fact in story.facts]
        spot = {relations[0][2]: (0, 0)}
        for _ in range(3):
            for one, way, other in relations:
                (dx, dy), sign, known, new = (steps[way], 1, other, one) if other in spot else (steps[way], -1, one, other)
                if known in spot:
                    spot[new] = (spot[known][0] + sign * dx, spot[known][1] + sign * dy)
        assert len(set(spot.values())) == 3
        if asked := re.fullmatch(r"What is (\w+) of the (\w+)\?", story.question):
            (dx, dy), place = steps[asked.group(1)], asked.group(2)
        else:
            place, way = re.fullmatch(r"What is the (\w+) (\w+) of\?", story.question).groups()
            dx, dy = (-step for step in steps[way])
        ahead = [name for name, (x, y) in spot.items() if (x - spot[place][0]) * dx + (y - spot[place][1]) * dy > 0]
        assert ahead == [story.answer]
        assert {place, story.answer} <= set(re.findall(r"\w+", story.facts[story.support[0]]))


def test_qa5_asks_about_one_gift_alone() -> None:
    for story in made("qa5"):
        holds: dict[str, str] = {}
        gifts = []
        for at, (kind, person, thing, *to) in enumerate(events(story)):
            assert holds.get(thing) == (person if kind == "give" else None)
            holds[thing] = to[0] if to else person
            if to:
                gifts.append((at, {"giver": person, "thing": thing, "receiver": to[0]}))
        shapes = {
            "giver": r"Who gave the (?P<thing>\w+) to (?P<receiver>\w+)\?",
            "thing": r"What did (?P<giver>\w+) give to (?P<receiver>\w+)\?",
            "receiver": r"Who did (?P<giver>\w+) give the (?P<thing>\w+) to\?",
        }
        [(sought, given)] = [(key, match) for key, shape in shapes.items() if (match := re.fullmatch(shape, story.question))]
        fitting = [(at, gift) for at, gift in gifts if given.groupdict().items() <= gift.items()]
        assert [((at,), gift[sought]) for at, gift in fitting] == [(story.support, story.answer)]


@pytest.mark.parametrize("kind", list(stories.KINDS))
def test_every_label_is_an_answer_now_and_then_and_none_in_its_own_question(kind: str) -> None:
    answers = Counter(story.answer for story in made(kind))
    labels = next(made(kind)).labels
    assert set(answers) == set(labels)
    assert max(answers.values()) < 3 * STORIES / len(labels)
    assert all(story.answer not in story.question for story in made(kind))


def test_names_do_not_stand_in_the_prose_around_them() -> None:
    words = set(re.findall(r"\w+", shipped_prose().lower()))
    assert words.isdisjoint(name.lower() for name in (*stories.PERSONS, *stories.PLACES, *stories.THINGS))
