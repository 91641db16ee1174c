"""Stories like bAbI's in our own words, for BABILong without any download.

The kinds follow bAbI's first five: where somebody is (qa1), where a thing is that somebody carries (qa2), where it was before
(qa3), what lies on one side of a place (qa4), who gave what to whom (qa5). Nothing is asked that has two answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from lengthwise.tasks.material.babi import Story

PERSONS = ("Agnes", "Boris", "Clara", "Dario")
PLACES = ("balcony", "bathroom", "garage", "hallway", "lobby", "pantry")
THINGS = ("globe", "kite", "trumpet")
MOVES = ("walked to", "hurried to", "went over to", "came to")
TAKES = ("took", "picked up", "got hold of")
DROPS = ("put down", "left", "let go of")
GIVES = ("gave", "handed", "passed")
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
FACTS = (4, 8)  # fewest and most of a story in which things happen


def story(kind: str, randomness: random.Random) -> Story:
    return KINDS[kind](randomness)


@dataclass
class _World:
    """The state of a story: where each person is, who holds which thing, and the facts that say so."""

    randomness: random.Random
    facts: list[str] = field(default_factory=list)
    at: dict[str, tuple[str, int]] = field(default_factory=dict)  # person -> (place, fact)
    holder: dict[str, str] = field(default_factory=dict)  # thing -> person
    touched: dict[str, list[int]] = field(default_factory=dict)  # thing -> facts in which it was taken or dropped
    trail: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # thing -> its (place, fact), one after the other

    def say(self, fact: str) -> int:
        self.facts.append(fact)
        return len(self.facts) - 1

    def move(self) -> None:
        person = self.randomness.choice(PERSONS)
        here = self.at.get(person, ("", -1))[0]
        place = self.randomness.choice([place for place in PLACES if place != here])
        self.at[person] = place, self.say(f"{person} {self.randomness.choice(MOVES)} the {place}.")
        for thing in self.carried(person):
            self.trail[thing].append(self.at[person])

    def take_or_drop(self) -> bool:
        """False where nobody is anywhere yet, or the person drawn has nothing to take or drop."""
        if not self.at:
            return False
        person = self.randomness.choice(list(self.at))
        things = self.carried(person) or [thing for thing in THINGS if self.lies_near(thing, person)]
        if not things:
            return False
        thing = self.randomness.choice(things)
        dropped = self.holder.get(thing) == person
        fact = self.say(f"{person} {self.randomness.choice(DROPS if dropped else TAKES)} the {thing}.")
        self.touched.setdefault(thing, []).append(fact)
        if dropped:
            del self.holder[thing]
        else:
            self.holder[thing] = person
            # The place is the same one; who has the thing now may have come there by another fact
            self.trail[thing] = [*self.trail.get(thing, [])[:-1], self.at[person]]
        return True

    def carried(self, person: str) -> list[str]:
        return [thing for thing in THINGS if self.holder.get(thing) == person]

    def lies_near(self, thing: str, person: str) -> bool:
        """A thing that nobody has touched yet may lie anywhere."""
        free = thing not in self.holder
        return free and (thing not in self.trail or self.trail[thing][-1][0] == self.at[person][0])


def _where_is_somebody(randomness: random.Random) -> Story:
    world = _World(randomness)
    for _ in range(randomness.randint(2, FACTS[1])):
        world.move()
    person = randomness.choice(list(world.at))
    place, fact = world.at[person]
    return Story(tuple(world.facts), f"Where is {person}?", place, (fact,), PLACES)


def _with_things(randomness: random.Random, wanted: Callable[[_World], list[str]]) -> tuple[_World, str]:
    """A random world in which `wanted` finds at least one thing to ask about, and one of those things."""
    while True:
        world = _World(randomness)
        goal = randomness.randint(*FACTS)
        while len(world.facts) < goal:
            if randomness.random() < 0.55 or not world.take_or_drop():
                world.move()
        if things := wanted(world):
            return world, randomness.choice(things)


def _where_is_a_thing(randomness: random.Random) -> Story:
    world, thing = _with_things(randomness, lambda world: list(world.trail))
    place, moved = world.trail[thing][-1]
    return Story(tuple(world.facts), f"Where is the {thing}?", place, (world.touched[thing][-1], moved), PLACES)


def _where_was_a_thing(randomness: random.Random) -> Story:
    """Asks about a thing that one person alone had and brought to its place once; told by its taking and its last two moves."""

    def unambiguous(world: _World) -> list[str]:
        trails = {thing: [place for place, _ in trail] for thing, trail in world.trail.items() if len(trail) > 1}
        return [thing for thing, places in trails.items() if len(world.touched[thing]) < 3 and places.count(places[-1]) == 1]

    world, thing = _with_things(randomness, unambiguous)
    (before, first), (place, second) = world.trail[thing][-2:]
    support = (world.touched[thing][0], first, second)
    return Story(tuple(world.facts), f"Where was the {thing} before the {place}?", before, support, PLACES)


def _on_one_side(randomness: random.Random) -> Story:
    """Three places in a row; the one in the middle is asked about, so that one answer alone is right."""
    first, middle, last = randomness.sample(PLACES, 3)
    way = randomness.choice(list(OPPOSITE))
    facts = [_relation(first, way, middle, randomness), _relation(middle, way, last, randomness)]
    order = randomness.sample(range(2), 2)
    answer, fact = randomness.choice([(first, 0), (last, 1)])
    side = way if answer == first else OPPOSITE[way]
    question = f"What is {side} of the {middle}?"
    if randomness.random() < 0.5:
        question = f"What is the {middle} {OPPOSITE[side]} of?"
    return Story(tuple(facts[at] for at in order), question, answer, (order.index(fact),), PLACES)


def _relation(one: str, way: str, other: str, randomness: random.Random) -> str:
    if randomness.random() < 0.5:
        return f"The {one} is {way} of the {other}."
    return f"The {other} is {OPPOSITE[way]} of the {one}."


def _who_gave_what(randomness: random.Random) -> Story:
    facts: list[str] = []
    holder: dict[str, str] = {}
    gifts: list[tuple[int, str, str, str]] = []  # fact, giver, thing, receiver
    goal = randomness.randint(*FACTS)
    while len(facts) < goal or not gifts:
        thing = randomness.choice(THINGS)
        if thing not in holder:
            holder[thing] = randomness.choice(PERSONS)
            facts.append(f"{holder[thing]} {randomness.choice(TAKES)} the {thing}.")
            continue
        giver = holder[thing]
        holder[thing] = randomness.choice([person for person in PERSONS if person != giver])
        gifts.append((len(facts), giver, thing, holder[thing]))
        facts.append(f"{giver} {randomness.choice(GIVES)} the {thing} to {holder[thing]}.")
    asked = []
    for fact, giver, thing, receiver in gifts:
        asked.append((f"Who gave the {thing} to {receiver}?", giver, fact))
        asked.append((f"What did {giver} give to {receiver}?", thing, fact))
        asked.append((f"Who did {giver} give the {thing} to?", receiver, fact))
    # Two gifts that the same question fits would be two answers
    questions = [question for question, _, _ in asked]
    unambiguous = [entry for entry in asked if questions.count(entry[0]) == 1]
    if not unambiguous:
        return _who_gave_what(randomness)
    question, answer, fact = randomness.choice(unambiguous)
    return Story(tuple(facts), question, answer, (fact,), PERSONS + THINGS)


KINDS: dict[str, Callable[[random.Random], Story]] = {
    "qa1": _where_is_somebody,
    "qa2": _where_is_a_thing,
    "qa3": _where_was_a_thing,
    "qa4": _on_one_side,
    "qa5": _who_gave_what,
}
