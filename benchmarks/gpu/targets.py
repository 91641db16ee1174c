"""Targets that were set before the kernel was written, for one H200, each with what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.results import Record, find

XL = "flan-t5-xl"


@dataclass(frozen=True)
class Promise:
    words: str
    value: float | None  # None: not measured
    limit: float
    at_least: bool = False
    unit: str = ""
    goal: bool = False  # hoped for, not promised

    @property
    def kept(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        verdict = {None: "not measured", True: "ok", False: "MISSED"}[self.kept]
        verdict = "goal missed" if self.goal and self.kept is False else verdict
        value = "-" if self.value is None else f"{_shown(self.value)}{self.unit}"
        sign = ">=" if self.at_least else "<="
        return f"{self.words}: {value} ({'goal ' if self.goal else ''}{sign} {_shown(self.limit)}{self.unit} {verdict})"


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def promises(records: Iterable[Record]) -> list[Promise]:
    records = list(records)
    return [*_speed(records), *_whole(records), *_errors(records)]


def _speed(records: list[Record]) -> list[Promise]:
    ours, both, flash, cudnn = "lengthwise", "lengthwise+statistics", "torch_flash", "cudnn"

    def at_least(words: str, limit: float, what: str, length: int, mine: str, theirs: str, **more: Any) -> Promise:
        return Promise(words, times_as_fast(records, what, length, mine, theirs, **more), limit, at_least=True)

    cost = times_as_fast(records, "attention", 16_384, ours, both)
    alone = {"field": "backward_seconds"}
    return [
        at_least("16k with both statistics / torch flash", 1.0, "attention", 16_384, both, flash),
        at_least("16k / cuDNN", 0.85, "attention", 16_384, ours, cudnn),
        at_least("32k / cuDNN", 0.93, "attention", 32_768, ours, cudnn),
        at_least("2k / torch flash", 0.8, "attention", 2048, ours, flash),
        Promise(
            "16k with both statistics / cuDNN",
            times_as_fast(records, "attention", 16_384, both, cudnn),
            1.0,
            at_least=True,
            goal=True,
        ),
        Promise("16k, what both statistics cost", None if cost is None else 100 * (cost - 1), 5.0, unit=" %", goal=True),
        at_least("8k backward alone / torch flash", 0.8, "backward", 8192, ours, flash, **alone),
        at_least("8k forward and backward / torch flash", 0.8, "backward", 8192, ours, flash),
    ]


def _whole(records: list[Record]) -> list[Promise]:
    def of(field: str, **wanted: Any) -> float | None:
        record = find(records, implementation="lengthwise", shape=XL, **wanted)
        return None if record is None else record[field]

    xl = [r for r in records if (r["what"], r["implementation"], r["shape"]) == ("encoder", "lengthwise", XL)]
    longest = max((r["length"] for r in xl if r["seconds"] is not None), default=None)
    return [
        Promise("XL encoder at 15,000", of("seconds", what="encoder", length=15_000), 0.25, unit=" s"),
        Promise("XL encoder at 15,000 above its weights", of("extra_gb", what="encoder", length=15_000), 1.5, unit=" GB"),
        Promise("XL encoder, longest forward run", longest, 131_072, at_least=True, unit=" tokens"),
        *(
            Promise(
                f"calibration of XL at 15,000, scope {scope}",
                of("seconds", what="calibration", length=15_000, scope=scope),
                limit,
                unit=" s",
            )
            for scope, limit in (("model", 2.0), ("layer", 1.0))
        ),
    ]


def _errors(records: list[Record]) -> list[Promise]:
    """The worst over all lengths."""
    found = [r["errors"] for r in records if r["what"] == "attention" and r.get("errors")]
    limits = {"output": (4e-3, "relative norm"), "p_max": (1e-5, "absolute"), "entropy": (1e-3, "absolute")}
    return [
        Promise(f"error of {name}, {how}", max((e[name] for e in found), default=None), limit)
        for name, (limit, how) in limits.items()
    ]


def times_as_fast(
    records: Iterable[Record], what: str, length: int, mine: str, theirs: str, field: str = "seconds"
) -> float | None:
    """Their time over mine, of one run; None where one is missing."""
    records = list(records)
    own = find(records, what=what, implementation=mine, length=length)
    if own is None or own.get(field) is None:
        return None
    other = find(records, what=what, implementation=theirs, length=length, shape=own["shape"], run=own["run"])
    if other is None or other.get(field) is None:
        return None
    return float(other[field] / own[field])
