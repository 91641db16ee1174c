"""Which pass keys were found: the records of `passkey` as tables by length and by depth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments._lib.markdown import table
from experiments.rope_methods.contenders import filled, split_aligned
from experiments.rope_methods.hiding import DEPTHS
from experiments.rope_methods.refused import read_refused, refusal
from lengthwise.common.files import write_whole
from lengthwise.records import Record, mean_interval, read_lines
from lengthwise.records.directory import CONFIG, RECORDS, read_config

FORMAT = "lengthwise.experiments.passkey/1"
FILE = "passkey.json"
ABOUT = """Percent of {samples} pass keys found, with Wilson's 95 % interval: a number of up to five digits, stated twice in
{material}. Prompt and answer together take the length; the model was trained on {train:,} tokens."""


def recorded_as(name: str, length: int, train_length: int) -> str:
    """The method's name in the records; an alignment is another one at every length."""
    spec = filled(name, length, train_length)
    return spec if split_aligned(name)[1] is None else f"{spec}-{length}"


@dataclass(frozen=True)
class Score:
    """The answers of one method at one length, or at one depth of several lengths."""

    method: str  # as named, with places to fill
    at: float  # tokens, or depth
    mean: float
    low: float  # ends of the 95 % interval
    high: float
    n: int


@dataclass(frozen=True)
class Found:
    """The answers to what was asked."""

    records: dict[tuple[str, int], list[Record]]  # by method as named, and length
    samples: int
    train_length: int
    command: str
    missing: int
    config: dict[str, Any]
    refused: dict[str, str]

    @classmethod
    def of(cls, folder: Path, cells: Sequence[tuple[str, int]], samples: int, train_length: int, command: str) -> Found:
        """Of `folder`, as far as `cells` have been answered."""
        run, refused = folder / "run", read_refused(folder)
        lines = read_lines(run / RECORDS, Record)
        config = read_config(run / CONFIG) if (run / CONFIG).exists() else {}
        records, missing = {}, 0
        for name, length in cells:
            recorded = recorded_as(name, length, train_length)
            some = [one for one in lines if (one.method, one.length) == (recorded, length) and one.index < samples]
            if refusal(filled(name, length, train_length), length) not in refused:
                missing += samples - len(some)
            if some:
                records[name, length] = some
        return cls(records, samples, train_length, command, missing, config, refused)

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.records))

    @property
    def lengths(self) -> list[int]:
        return sorted({length for _, length in self.records})

    def by_length(self) -> list[Score]:
        return [_score(name, length, records) for (name, length), records in self.records.items()]

    def by_depth(self) -> list[Score]:
        """Beyond the training length only, all lengths together."""
        found = []
        for name in self.methods:
            beyond = [
                one for (of, n), records in self.records.items() if of == name and n > self.train_length for one in records
            ]
            for depth in DEPTHS:
                if some := [one for one in beyond if one.depth == depth]:
                    found.append(_score(name, depth, some))
        return found


def section(found: Found) -> list[str]:
    """The tables, as parts of a page."""
    material = found.config.get("tasks", {}).get("passkey", "")
    parts = [ABOUT.format(samples=found.samples, material=material, train=found.train_length)]
    parts.append(_table(found.by_length(), [f"{n:,}" for n in found.lengths], found.lengths, found))
    if depths := found.by_depth():
        parts += ["By depth, all lengths beyond the training length together; 0 is the beginning:"]
        parts.append(_table(depths, [str(depth) for depth in DEPTHS], DEPTHS, found))
    if found.refused:
        parts.append("\n".join(["Refused:", "", *(f"- `{name}`: {why}" for name, why in found.refused.items())]))
    return parts


def write_found(folder: Path, found: Found) -> str:
    """Writes passkey.json and passkey.md; returns the page."""
    parts = ["# Pass keys in long text", _told(found)]
    if found.missing:
        parts.append(f"**Unfinished**: {found.missing:,} answers are missing. The same command goes on.")
    text = "\n\n".join([*parts, *section(found)]) + "\n"
    document = {
        "format": FORMAT,
        "command": found.command,
        "config": {key: found.config.get(key) for key in ("model", "settings", "tasks", "made_with")},
        "train_length": found.train_length,
        "samples": found.samples,
        "missing": found.missing,
        "refused": found.refused,
        "by_length": [asdict(score) for score in found.by_length()],
        "by_depth": [asdict(score) for score in found.by_depth()],
    }
    write_whole(folder / FILE, json.dumps(document, indent=1) + "\n")
    write_whole(folder / "passkey.md", text)
    return text


def _score(name: str, at: float, records: Sequence[Record]) -> Score:
    return Score(name, at, *mean_interval([record.score for record in records]), len(records))


def _told(found: Found) -> str:
    model, settings = found.config["model"], found.config["settings"]
    lines = [f"model: {model['name']} (weights {model['weights']}), trained on {found.train_length:,} tokens"]
    lines += [f"{key}: {value}" for key, value in found.config["made_with"].items()]
    lines += [f"{key}: {settings[key]}" for key in ("dtype", "seed")]
    return "\n".join(f"- {line}" for line in [*lines, f"command: `{found.command}`"])


def _table(scores: Sequence[Score], head: Sequence[str], columns: Sequence[float], found: Found) -> str:
    by_place = {(score.method, score.at): score for score in scores}
    names = list(dict.fromkeys(score.method for score in scores))
    rows = [[f"`{name}`", *(_cell(by_place.get((name, at)), found) for at in columns)] for name in names]
    return table(["method", *head], rows)


def _cell(score: Score | None, found: Found) -> str:
    if score is None:
        return ""
    few = f", n {score.n}" if score.n < found.samples and score.at > 1 else ""
    return f"{100 * score.mean:.0f} [{100 * score.low:.0f}, {100 * score.high:.0f}{few}]"
