"""What one part of the page tells of: a model under one set of settings, from one run directory or several.

Runs of the same weights with the same settings are merged, as if they had been written into one directory; a sample that
stands in two of them counts once. Anything else gets a section of its own, also an alignment file of the same name with other
contents, so that no curve mixes two things.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from lengthwise.errors import BadInput
from lengthwise.records import Cell, Record, Sharpness, summarise
from lengthwise.records.config import grown
from lengthwise.report.read import Run


class Subject(NamedTuple):
    """What a chart is about: a task on generated samples, or on official files."""

    task: str
    official: bool

    @property
    def name(self) -> str:
        return f"{self.task} (official files)" if self.official else self.task

    def covers(self, of: Cell | Record) -> bool:
        return of.task == self.task and bool(of.data) == self.official


@dataclass(frozen=True)
class Section:
    runs: tuple[Run, ...]

    @cached_property
    def records(self) -> list[Record]:
        """Each sample once, under one name of the model: it may have stood in another directory for another run."""
        once = {record.key: record for run in reversed(self.runs) for record in run.records}
        return sorted((replace(record, model=self.model) for record in once.values()), key=lambda record: record.key)

    @cached_property
    def cells(self) -> list[Cell]:
        return summarise(self.records)

    @cached_property
    def sharpness(self) -> list[Sharpness]:
        once = {line.key: line for run in reversed(self.runs) for line in run.sharpness}
        return sorted(once.values(), key=lambda line: line.length)

    @cached_property
    def documents(self) -> dict[str, Any]:
        """What config.json says of every method: null, or its alignment documents."""
        return {spec: document for run in self.runs for spec, document in run.config["methods"].items()}

    @cached_property
    def reads(self) -> dict[str, str]:
        """What of a prompt each method reads; runs of earlier versions do not tell."""
        return {spec: what for run in self.runs for spec, what in run.config.get("reads", {}).items()}

    @cached_property
    def materials(self) -> dict[str, str | None]:
        """What the samples of each task are made of; null is what the package brings."""
        return {task: made for run in self.runs for task, made in run.config.get("tasks", {}).items()}

    @cached_property
    def given(self) -> dict[str, str | None]:
        """Where files and materials came from: a path, or null for Python; runs of earlier versions do not tell."""
        return {what: path for run in self.runs for what, path in run.config.get("given", {}).items()}

    @cached_property
    def methods(self) -> list[str]:
        """Specs in the order they are shown: the plain model, truncation, then as they were run."""
        used = {cell.method for cell in self.cells}
        rank = {"none": 0, "truncate": 1}
        return sorted((spec for spec in self.documents if spec in used), key=lambda spec: rank.get(spec, 2))

    @cached_property
    def alignments(self) -> list[tuple[str, dict[str, Any]]]:
        return [(spec, document) for spec in self.methods for document in alignments_in(self.documents[spec])]

    @cached_property
    def subjects(self) -> list[Subject]:
        """Generated tasks first, each in the order it was run."""
        found = dict.fromkeys(Subject(record.task, bool(record.data)) for run in self.runs for record in run.records)
        return sorted(found, key=lambda subject: subject.official)

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.runs[0].config["settings"]
        return settings

    @property
    def fingerprint(self) -> dict[str, Any]:
        fingerprint: dict[str, Any] = self.runs[0].config["model"]
        return fingerprint

    @property
    def train_length(self) -> int:
        return int(self.settings["train_length"])

    @property
    def model(self) -> str:
        return self.runs[0].records[0].model

    def cells_of(self, subject: Subject, method: str) -> list[Cell]:
        cells = [cell for cell in self.cells if cell.method == method and subject.covers(cell)]
        return sorted(cells, key=lambda cell: (cell.length, cell.data))


def sections(runs: Iterable[Run]) -> list[Section]:
    groups: list[list[Run]] = []
    for run in runs:
        home = next((group for group in groups if all(_fit(run, other) for other in group)), None)
        if home is None:
            groups.append([run])
        else:
            home.append(run)
    return [Section(tuple(group)) for group in groups]


def _fit(one: Run, other: Run) -> bool:
    try:
        grown(one.config, other.config, one.path)
    except BadInput:
        return False
    return True


def alignments_in(document: Any) -> list[dict[str, Any]]:
    """The alignment documents a method was run with; none, one or several."""
    if isinstance(document, list):
        return [found for part in document for found in alignments_in(part)]
    return [document] if isinstance(document, dict) else []
