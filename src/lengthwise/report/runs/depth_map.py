"""Needle depth against length as a heat map, one a method and task: where in the input does the model lose the answer?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from lengthwise.records import Record
from lengthwise.report.charts import AxisTick, length_label
from lengthwise.report.formatting import percent, tokens_at
from lengthwise.report.runs.group import ReportedTask, RunGroup
from lengthwise.report.styles import Style

FEW, MANY = 5, 10  # bins of depth
ENOUGH = 50  # samples a column for the finer bins
CELL_WIDTH, LEFT, RIGHT, TOP, BOTTOM = 42, 44, 6, 8, 26
HEIGHTS = {FEW: 26, MANY: 17}
# Scores on whose cells white can be read and black hardly: from the one on on a light screen, up to the other on a dark one
WHITE_BY_DAY, WHITE_BY_NIGHT = 0.8, 0.62

Column = tuple[int, str]  # length, name of a file


@dataclass(frozen=True)
class HeatCell:
    x: float
    y: float
    mean: float
    label: str  # the score, in the cell
    white_on: str  # classes of the style sheet
    place: str  # length and depth, as the hover shows them
    text: str  # the score and of how many samples


@dataclass(frozen=True)
class DepthMap:
    title: str
    description: str
    method: str
    style: Style
    width: int
    height: int
    cell_width: int
    cell_height: int
    frame: tuple[float, float, float, float]  # x, y, width, height of all cells, the blank ones included
    cells: tuple[HeatCell, ...]
    columns: tuple[AxisTick, ...]
    rows: tuple[AxisTick, ...]
    train_x: float | None  # between the columns up to the training length and those beyond


def depth_maps(group: RunGroup, reported: ReportedTask, styles: Mapping[str, Style]) -> list[DepthMap]:
    """One map a method; all maps of a task have the same columns and bins. Empty where no depth is known."""
    known = [record for record in group.records if reported.covers(record) and record.depth is not None]
    columns = sorted({(record.length, record.data) for record in known})
    per_column = Counter((record.method, record.length, record.data) for record in known)
    bins = MANY if known and min(per_column.values()) >= ENOUGH else FEW
    by_method = {spec: [record for record in known if record.method == spec] for spec in group.methods}
    return [
        _depth_map(records, columns, bins, reported, spec, styles[spec], group.train_length)
        for spec, records in by_method.items()
        if records
    ]


def _depth_map(
    records: list[Record], columns: list[Column], bins: int, reported: ReportedTask, spec: str, style: Style, train_length: int
) -> DepthMap:
    scores: dict[tuple[int, int], list[float]] = defaultdict(list)
    for record in records:
        scores[columns.index((record.length, record.data)), bin_of(record.depth, bins)].append(record.score)
    height = HEIGHTS[bins]
    cells = tuple(_cell(k, row, columns[k], bins, height, cell_scores) for (k, row), cell_scores in sorted(scores.items()))
    inside = sum(1 for length, _ in columns if length <= train_length)
    return DepthMap(
        title=style.name,
        description=f"Score of {reported.title} with {style.name} by needle depth and length",
        method=spec,
        style=style,
        width=LEFT + CELL_WIDTH * len(columns) + RIGHT,
        height=TOP + height * bins + BOTTOM,
        cell_width=CELL_WIDTH,
        cell_height=height,
        frame=(LEFT, TOP, CELL_WIDTH * len(columns), height * bins),
        cells=cells,
        columns=tuple(AxisTick(LEFT + CELL_WIDTH * (k + 0.5), length_label(n)) for k, (n, _) in enumerate(columns)),
        rows=tuple(AxisTick(TOP + height * bins * part / 2, f"{50 * part} %") for part in range(3)),
        train_x=LEFT + CELL_WIDTH * inside if 0 < inside < len(columns) else None,
    )


def _cell(k: int, row: int, column: Column, bins: int, height: int, scores: list[float]) -> HeatCell:
    mean = sum(scores) / len(scores)
    return HeatCell(
        x=LEFT + CELL_WIDTH * k,
        y=TOP + height * row,
        mean=mean,
        label=f"{100 * mean:.0f}",
        white_on=white_on(mean),
        place=f"{tokens_at(*column)}, depth {100 * row // bins} to {100 * (row + 1) // bins} %",
        text=f"{percent(mean)} of {len(scores)} sample{'s' * (len(scores) != 1)}",
    )


def white_on(score: float) -> str:
    """The style sheet's classes of a cell: on which screens its label is white; elsewhere it is black."""
    return " ".join(["white-by-day"] * (score >= WHITE_BY_DAY) + ["white-by-night"] * (score <= WHITE_BY_NIGHT))


def bin_of(depth: float | None, bins: int) -> int:
    """The bin of a depth: 0 is the beginning of the input, and depth 1 belongs to the last."""
    return min(int((depth or 0.0) * bins), bins - 1)
