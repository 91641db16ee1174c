"""RULER's needles: how many are hidden, where, in what, and which are asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

from lengthwise.tasks import TASKS, Sample
from lengthwise.tasks.ruler.needles import KINDS, NOISE

TOKENIZER = ByT5Tokenizer()
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
every_kind = pytest.mark.parametrize("kind", KINDS)


def samples(kind: str, n: int = 3, **options: Any) -> list[Sample]:
    return TASKS[f"ruler_{kind}"].samples(TOKENIZER, 4000, n, 0, **options)


def needles_of(kind: str, sample: Sample) -> list[tuple[str, str]]:
    """Keys and values as a reader of the prompt finds them; of needles among needles the last may be cut."""
    key = UUID if KINDS[kind].key == "UUID" else r"[a-z]+(?:-[a-z]+)+"
    value = UUID if KINDS[kind].value == "UUID" else r"[1-9]\d{6}"
    found = re.findall(rf"One {KINDS[kind].value} that belongs to ({key}) is ({value})\.", sample.prompt)
    return [(one, other) for one, other in found]


@every_kind
def test_as_many_needles_are_hidden_as_the_task_has_and_each_once(kind: str) -> None:
    hidden = KINDS[kind]
    for sample in samples(kind):
        needles = needles_of(kind, sample)
        assert len(set(needles)) == len(needles)
        if hidden.haystack == "needles":
            assert len(needles) > 30 if hidden.key == "word" else len(needles) > 20
            assert len({key for key, _ in needles}) == len(needles)
        else:
            assert len(needles) == hidden.keys * hidden.values
            assert len({key for key, _ in needles}) == hidden.keys


@every_kind
def test_the_references_are_all_values_of_the_keys_asked_for(kind: str) -> None:
    for sample in samples(kind):
        asked = [key for key in dict.fromkeys(key for key, _ in needles_of(kind, sample)) if key in sample.question]
        assert len(asked) == KINDS[kind].asked
        values = {value for key, value in needles_of(kind, sample) if key in asked}
        assert set(sample.target.split(" | ")) == values
        assert len(values) == KINDS[kind].asked * KINDS[kind].values


@every_kind
@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_the_needles_asked_for_stand_at_the_depth(kind: str, depth: float) -> None:
    for sample in samples(kind, 2, depth=depth):
        assert sample.depth == depth
        body = sample.prompt.removesuffix(sample.question)
        for reference in sample.target.split(" | "):
            # A needle may be a long part of a short prompt, and the last piece comes behind it
            assert body.index(reference) / len(body) == pytest.approx(depth, abs=0.15)


def test_the_haystacks() -> None:
    (noise,) = samples("niah_single_1", 1)
    lines = noise.prompt.split("\n")[1:-1]
    assert all(line == NOISE or line.startswith("One number") for line in lines[:-1])
    assert NOISE.startswith(lines[-1])
    (essays,) = samples("niah_single_2", 1)
    assert NOISE not in essays.prompt


def test_needles_are_hidden_in_a_text_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Snow fell. It was cold. " * 20)
    task = TASKS["ruler_niah_multiquery"].of(tmp_path / "mine.txt")
    (sample,) = task.samples(TOKENIZER, 2000, 1, 0)
    text = re.sub(r"One number that belongs to \S+ is \d+\. ", "", sample.prompt).split("\n")[1]
    assert text in "It was cold. Snow fell. " * 100 or text in "Snow fell. It was cold. " * 100
    assert task.material.startswith("mine.txt (")
