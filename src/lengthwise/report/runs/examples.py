"""One sample a task, as every method answered it: a score is easier to believe beside an answer."""

from __future__ import annotations

from dataclasses import dataclass

from lengthwise.records import Record
from lengthwise.report.runs.group import ReportedTask, RunGroup


@dataclass(frozen=True)
class Example:
    name: str
    length: int
    data: str
    target: str
    answers: tuple[Record, ...]  # one a method


def example(group: RunGroup, reported: ReportedTask) -> Example:
    """At the longest length: the first sample that the methods answered differently well, else the first of all."""
    records = [record for record in group.records if reported.covers(record)]
    length, data = max((record.length, record.data) for record in records)
    samples: dict[tuple[int, int], dict[str, Record]] = {}
    for record in records:
        if (record.length, record.data) == (length, data):
            samples.setdefault((record.seed, record.index), {})[record.method] = record
    tell = [answers for answers in samples.values() if len({record.score for record in answers.values()}) > 1]
    chosen = (tell or list(samples.values()))[0]
    answers = tuple(chosen[spec] for spec in group.methods if spec in chosen)
    return Example(reported.title, length, data, answers[0].target, answers)
