"""What an evaluation leaves behind: a run directory of append-only records that no kill and no second process can damage."""

from lengthwise.records.append_only import read_lines
from lengthwise.records.consistency import check_consistent
from lengthwise.records.directory import RunDirectory
from lengthwise.records.intervals import mean_interval
from lengthwise.records.record import CellKey, Record, Sharpness
from lengthwise.records.summary import Cell, summarise

__all__ = [
    "Cell",
    "CellKey",
    "Record",
    "RunDirectory",
    "Sharpness",
    "check_consistent",
    "mean_interval",
    "read_lines",
    "summarise",
]
