"""What an evaluation leaves behind: a run directory of append-only records that no kill and no second process can damage."""

from lengthwise.records.append_only import read_lines as read_lines
from lengthwise.records.consistency import check_consistent as check_consistent
from lengthwise.records.directory import RunDirectory as RunDirectory
from lengthwise.records.intervals import mean_interval as mean_interval
from lengthwise.records.record import CellKey as CellKey
from lengthwise.records.record import Record as Record
from lengthwise.records.record import Sharpness as Sharpness
from lengthwise.records.summary import Cell as Cell
from lengthwise.records.summary import summarise as summarise
