"""A run directory: config.json, records.jsonl, sharpness.jsonl and summary.csv.

Any number of processes may work on one directory. They share out cells by claiming them; a cell that a dead process had
claimed is free again at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path

from lengthwise.common.files import PART, write_whole
from lengthwise.common.formats import parse_json, read_format
from lengthwise.errors import BadInput, require
from lengthwise.records.append_only import AppendOnly
from lengthwise.records.config import ANOTHER, FORMAT, Config, check_whole, merged_config
from lengthwise.records.locks import claim
from lengthwise.records.record import CellKey, Record, Sharpness
from lengthwise.records.summary import summarise, summary_csv

RECORDS, SHARPNESS, CONFIG, SUMMARY = "records.jsonl", "sharpness.jsonl", "config.json", "summary.csv"


class RunDirectory:
    """A run directory, opened or made for one `config`; refused where it holds records that do not go with that."""

    def __init__(self, path: str | Path, config: Config) -> None:
        self.path = Path(path)
        # A run killed at its beginning has records alone; a config.json of others is refused before anything is put beside it
        if make_or_enter(self.path, "a run directory", CONFIG, (RECORDS,)):
            read_config(self.path / CONFIG)
        require(os.access(self.path, os.W_OK), f"cannot write to {self.path}; {ANOTHER}")
        self.records = AppendOnly(self.path / RECORDS, Record)
        with self.records.locked():
            # Only the holder of the lock writes, so whoever left these is dead
            for part in self.path.glob(f"{PART}*"):
                part.unlink(missing_ok=True)
            # As it would be read back, so that a tuple in memory is not taken for another value than a list on disk
            self.config = self._agreed(parse_json(json.dumps(config)))
        self.sharpness = AppendOnly(self.path / SHARPNESS, Sharpness)

    def of_cell(self, cell: CellKey) -> dict[int, Record]:
        """The cell's records by index, as far as they have been read."""
        return {line.index: line for line in self.records.lines.values() if line.cell == cell}

    def claim(self, cell: CellKey) -> AbstractContextManager[bool]:
        """True while the cell is ours to work on; False when another process has it."""
        name = hashlib.sha256(json.dumps(cell).encode()).hexdigest()[:24]
        return claim(self.path / f".claim-{name}")

    def write_summary(self) -> None:
        """Write summary.csv anew from all records."""
        with self.records.locked():
            write_whole(self.path / SUMMARY, summary_csv(summarise(self.records.lines.values())))

    def _agreed(self, config: Config) -> Config:
        """The config on disk, made or extended; the caller holds the lock."""
        path = self.path / CONFIG
        old = read_config(path) if path.exists() else None
        require(old is not None or not self.records.lines, f"{self.path} holds records but no config.json; {ANOTHER}")
        agreed = config if old is None else merged_config(old, config, self.path)
        if agreed != old:
            write_whole(path, json.dumps(agreed, indent=2) + "\n")
        return agreed


def read_config(path: Path, otherwise: str = ANOTHER) -> Config:
    """The config of a run directory; where the file is none, it is said what to do `otherwise`."""
    config = read_format(path, FORMAT, "the config of a run directory", otherwise)
    check_whole(config, path.parent)
    return config


def make_or_enter(path: Path, what: str, begun: str, others: Collection[str] = ()) -> bool:
    """Make a directory, or enter one: true where it holds the file `begun`, refused where it holds anything but `others`.

    What a kill may have left, claims and files that were being written, counts as nothing.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in path.iterdir() if not entry.name.startswith((".claim-", PART))}
    except OSError as error:
        raise BadInput(f"cannot use {path} as {what}: {error.strerror}; {ANOTHER}") from None
    foreign = min(names - {*others}, default="")
    require(begun in names or not foreign, f"{path} is not {what}, but holds {foreign}; {ANOTHER}, new or empty")
    return begun in names
