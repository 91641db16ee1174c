"""The rows of the table: a model with a method, whose places are filled for the long length, and its five numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.output_alignment.correlation_cells import LONG, SHORT, Estimate, read_cells
from experiments.output_alignment.correlation_subject import FILE, Noted, read_noted
from experiments.rope_methods.contenders import PLAIN, filled
from experiments.rope_methods.refused import read_refused, refusal

# Differences below half of it, in nats, are rounding of the arithmetic and must not make ranks
DECIMALS = 3


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    model: str
    method: str  # as named, with places to fill
    spec: str  # as filled for the long length
    length: int  # the long one, tokens
    factor: float  # of the training length
    l_train: Estimate
    l_misalign: Estimate
    kl: Estimate
    log_ppl: Estimate
    beyond: Estimate
    unchanged: bool  # up to the training length it says what the plain model says

    @property
    def family(self) -> str:
        """Its position method: temperatures on top of one, and lengths, make rows that are alike."""
        return self.method.partition("+")[0]

    @property
    def short(self) -> tuple[Estimate, ...]:
        return self.l_train, self.l_misalign, self.kl


@dataclass(frozen=True)
class Measured:
    """One model's folder."""

    noted: Noted
    rows: list[Row]
    refused: dict[str, str]  # what -> why
    missing: int  # rows that were asked for and are neither measured nor refused


def measured_in(out: Path) -> list[Measured]:
    """Of all models, by name."""
    return [_measured(file.parent) for file in sorted(out.glob(f"*/{FILE}"))]


def _measured(folder: Path) -> Measured:
    noted, cells, refused = read_noted(folder), read_cells(folder), read_refused(folder)
    train = noted.train_length

    def estimates(spec: str, length: int) -> dict[str, Estimate] | None:
        keys = [*((name, spec, train) for name in SHORT), *((name, spec, length) for name in LONG)]
        return {key[0]: _rounded(cells[key].estimate) for key in keys} if all(key in cells for key in keys) else None

    plain = [_rounded(cells[key].estimate) for name in SHORT if (key := (name, PLAIN, train)) in cells]
    rows, missing = [], 0
    for method, length in noted.asked:
        spec = filled(method, length, train)
        found = estimates(spec, length)
        if found is not None:
            same = [found[name].mean for name in SHORT] == [one.mean for one in plain]
            rows.append(Row(noted.name, method, spec, length, length / train, **found, unchanged=same))
        else:
            missing += not {refusal(spec, train), refusal(spec, length)} & set(refused)
    return Measured(noted, rows, refused, missing)


def _rounded(one: Estimate) -> Estimate:
    return Estimate(*(round(value, DECIMALS) for value in (one.mean, one.low, one.high)))
