"""Runs that belong together on a page: a model under one set of settings, from one run directory or several.

Runs of the same weights with the same settings are merged, as if they had been written into one directory; a sample that
stands in two of them counts once. Anything else is a group of its own, also an alignment file of the same name with other
contents, so that no curve mixes two things. Directories are read without touching them: one that is still being written shows
as far as it has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from lengthwise.errors import BadInput, require
from lengthwise.records import Cell, Record, Sharpness, check_consistent, read_lines, summarise
from lengthwise.records.config import Config, merged_config
from lengthwise.records.directory import CONFIG, RECORDS, SHARPNESS, read_config
from lengthwise.tasks import ruler, scores_of_records

MAKE_ONE = "make one with `lengthwise evaluate ... --out RUN_DIR`"


@dataclass(frozen=True)
class ReadRun:
    """The content of one run directory."""

    path: Path
    config: Config
    records: list[Record]
    sharpness: list[Sharpness]


def read_run(path: Path) -> ReadRun:
    """Read a run directory; what is wrong with one is refused in a line that names it."""
    require(path.is_dir(), f"there is no directory {path}; {MAKE_ONE}")
    require((path / CONFIG).is_file(), f"{path} is not a run directory: it has no {CONFIG}; {MAKE_ONE}")
    config = read_config(path / CONFIG, MAKE_ONE)
    trained = config["settings"].get("train_length")
    require(isinstance(trained, int) and trained > 1, f"{path / CONFIG} tells no train_length, but {trained!r}; {MAKE_ONE}")
    require(isinstance(config.get("made_with"), dict), f"{path / CONFIG} does not tell what it was made with; {MAKE_ONE}")
    records = read_lines(path / RECORDS, Record)
    require(len(records) > 0, f"{path} holds no finished sample yet; let `lengthwise evaluate ... --out {path}` run")
    unknown = {record.method for record in records} - config["methods"].keys()
    require(not unknown, f"{path / RECORDS} has records of {min(unknown, default='')!r}, a method that {CONFIG} does not name")
    check_consistent(records, path / RECORDS, config, scores_of_records())
    records += ruler.mean_records(records)
    return ReadRun(path, config, records, read_lines(path / SHARPNESS, Sharpness))


class ReportedTask(NamedTuple):
    """A task as a chart shows it: on generated samples, or on files of the user's."""

    task: str
    own_files: bool

    @property
    def title(self) -> str:
        return f"{self.task} (your own files)" if self.own_files else self.task

    def covers(self, scored: Cell | Record) -> bool:
        return scored.task == self.task and bool(scored.data) == self.own_files


@dataclass(frozen=True)
class RunGroup:
    """Runs of one model under one set of settings, as if they were one."""

    runs: tuple[ReadRun, ...]

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
        """By method, the content of the files it was read from; null where it has none."""
        return {spec: document for run in self.runs for spec, document in run.config["methods"].items()}

    def config_entries(self, key: str) -> dict[str, str | None]:
        """An entry of config.json that runs of earlier versions do not have: `reads`, `tasks`, `data`, `given`, `code`."""
        return {name: value for run in self.runs for name, value in run.config.get(key, {}).items()}

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
    def tasks(self) -> list[ReportedTask]:
        """Generated tasks first, each in the order it was run."""
        tasks = dict.fromkeys(ReportedTask(record.task, bool(record.data)) for run in self.runs for record in run.records)
        return sorted(tasks, key=lambda reported: reported.own_files)

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.runs[0].config["settings"])

    @property
    def train_length(self) -> int:
        return int(self.settings["train_length"])

    @property
    def model(self) -> str:
        return self.runs[0].records[0].model

    def cells_of(self, reported: ReportedTask, method: str) -> list[Cell]:
        cells = [cell for cell in self.cells if cell.method == method and reported.covers(cell)]
        return sorted(cells, key=lambda cell: (cell.length, cell.data))


def group_runs(runs: Iterable[ReadRun]) -> list[RunGroup]:
    groups: list[list[ReadRun]] = []
    for run in runs:
        home = next((group for group in groups if all(_belong_together(run, other) for other in group)), None)
        if home is None:
            groups.append([run])
        else:
            home.append(run)
    return [RunGroup(tuple(group)) for group in groups]


def _belong_together(run: ReadRun, other: ReadRun) -> bool:
    """Whether each run could have been written into the directory of the other."""
    try:
        merged_config(run.config, other.config, run.path)
        merged_config(other.config, run.config, other.path)
    except BadInput:
        return False
    return True


def alignments_in(document: Any) -> list[dict[str, Any]]:
    """The alignment documents a method was run with; none, one or several."""
    if isinstance(document, list):
        return [inner for part in document for inner in alignments_in(part)]
    return [document] if isinstance(document, dict) and "temperatures" in document else []
