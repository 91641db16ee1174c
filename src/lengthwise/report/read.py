"""A run directory, read without touching it: one that is still being written shows as far as it has come."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lengthwise.errors import BadInput, require
from lengthwise.records import Record, Sharpness, read_lines
from lengthwise.records.config import FORMAT, Config, check_whole
from lengthwise.records.directory import CONFIG, RECORDS, SHARPNESS, read_config

MAKE_ONE = "make one with `lengthwise evaluate ... --out RUN_DIR`"


@dataclass(frozen=True)
class Run:
    path: Path
    config: Config
    records: list[Record]
    sharpness: list[Sharpness]


def read_run(path: Path) -> Run:
    require(path.is_dir(), f"there is no directory {path}; {MAKE_ONE}")
    try:
        config = read_config(path / CONFIG)
    except BadInput:
        raise BadInput(f"{path} is not a run directory: it has no {CONFIG} of a run; {MAKE_ONE}") from None
    found = config.get("format")
    require(found == FORMAT, f"{path} is not a run directory of this version: its format is {found!r}, not {FORMAT!r}")
    check_whole(config, path)
    trained = config["settings"].get("train_length")
    require(isinstance(trained, int) and trained > 1, f"{path / CONFIG} tells no train_length, but {trained!r}; {MAKE_ONE}")
    require(isinstance(config.get("made_with"), dict), f"{path / CONFIG} does not tell what it was made with; {MAKE_ONE}")
    records = read_lines(path / RECORDS, Record)
    require(len(records) > 0, f"{path} holds no finished sample yet; let `lengthwise evaluate ... --out {path}` run")
    unknown = {record.method for record in records} - config["methods"].keys()
    require(not unknown, f"{path / RECORDS} has records of {min(unknown, default='')!r}, a method that {CONFIG} does not name")
    return Run(path, config, records, read_lines(path / SHARPNESS, Sharpness))
