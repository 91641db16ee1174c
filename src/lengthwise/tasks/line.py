"""Line: many lines, each with a name and a number; one line's number is asked for at the end.

The layout is LongEval's (Li et al. 2023; paper 000, Table 4), the names are ours. Scored by the last whole number of the
answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from lengthwise.tasks.sample import Sample, fitted, last_integer, token_count

ADJECTIVES = (
    "amber brisk calm dusty eager faint gentle hollow icy jolly keen lively mellow narrow oaken pale quiet rough silver tidy "
    "upper velvet warm young zesty bold crisp dim early frosty grand humble idle jagged kind lean misty noble odd plain quick "
    "rusty small tall urban vast wild bright cool deep even fresh"
).split()
NOUNS = (
    "anchor basket candle door engine feather garden hammer island jacket kettle ladder meadow needle orchard pebble quarry "
    "river saddle table umbrella valley window yard acorn bridge cabin desk ember fence glove harbour inkwell jug knot lantern "
    "mirror nest oven paddle quilt rope stove tunnel urn violin wagon axle barrel chimney drawer"
).split()
INTRODUCTION = "Below is a record of lines. Each line has a name and a number. Remember the number of every line."


def samples(tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %; the line asked for stands at `depth`, or anywhere."""
    made = []
    for index in range(n):
        randomness = random.Random(f"line {seed} {index}")
        at = randomness.random() if depth is None else depth
        lines = _lines(randomness)
        name, number, asked = next(lines)
        question = f"Which number is on line {name}? The number of line {name} is"

        def prompt_of(others: list[str], at: float = at, asked: str = asked, question: str = question) -> str:
            cut = round(at * len(others))
            return "\n".join([INTRODUCTION, *others[:cut], asked, *others[cut:], question])

        others = fitted(tokenizer, length, (line for _, _, line in lines), prompt_of)
        prompt = prompt_of(others)
        made.append(Sample(prompt, str(number), token_count(tokenizer, prompt), at))
    return made


def score(prediction: str, target: str) -> float:
    return float(last_integer(prediction) == target)


def _lines(randomness: random.Random) -> Iterator[tuple[str, int, str]]:
    """Lines without end, no name twice: once all pairs are used a third word makes new ones."""
    names = [f"{a}-{b}" for a in ADJECTIVES for b in NOUNS]
    randomness.shuffle(names)
    suffixes = ["", *(f"-{word}" for word in randomness.sample(NOUNS, len(NOUNS)))]
    for suffix in suffixes:
        for name in names:
            number = randomness.randint(1, 50000)
            full = name + suffix
            yield full, number, f"line {full}: REGISTER_CONTENT is <{number}>"
