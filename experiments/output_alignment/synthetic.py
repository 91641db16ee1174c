"""Figures 1, 3, 4 and 5 of Output Alignment: mean, length and sum of bits, told by small decoders past their training length.

    python -m experiments.output_alignment.synthetic --out runs/bits                    # trains what is not yet trained
    ... --figure 1c 1a --minutes 20                                                     # these figures first, for so long
    ... --together 100 --device cuda                                                    # so many models side by side
    ... --page                                                                          # OUT/synthetic.md, .json and charts

OUT/curves.jsonl gets a line a trained model: the same command again goes on where the last one stopped, and several at once
share the work. A model of the default size takes about 40 seconds of one core.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from experiments._lib.command import exit_status
from experiments._lib.processes import Once, TimeIsUp, at_most, share_out
from experiments.output_alignment import bits_page
from experiments.output_alignment.bits_configurations import FIGURES, SEEDS, Curve
from experiments.output_alignment.bits_training import Job, Settings, train
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.sweep.run_config import made_with
from lengthwise.records.append_only import AppendOnly, read_lines


@dataclass(frozen=True)
class Options:
    out: Path
    figures: tuple[str, ...] = tuple(FIGURES)
    seeds: int = len(SEEDS)
    together: int = len(SEEDS)
    minutes: float = float("inf")
    device: str = "cpu"
    page: bool = False
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        for name in ("seeds", "together"):
            require(getattr(self, name) >= 1, f"--{name} must be at least 1, not {getattr(self, name)}")
        require(self.minutes > 0, f"--minutes must be above 0, not {self.minutes}")


def run(options: Options, command: str = "") -> None:
    if options.page:
        print(*bits_page.write(read_lines(_file(options), Curve), options.out, _facts(options)), sep="\n")
        return
    _begin(options, command)
    kept = AppendOnly(_file(options), Curve)
    works = [_work(kept, group, options) for group in groups(jobs(options.figures, options.seeds), options.together)]
    try:
        with at_most(options.minutes):
            share_out(works)
    except TimeIsUp:
        done = sum(work.done() for work in works)
        print(f"{done} of {len(works)} groups of models are trained; the same command goes on")


def jobs(figures: Sequence[str], seeds: int) -> list[Job]:
    """Every configuration with every seed, once, in the order of the figures."""
    wanted = dict.fromkeys(one for name in figures for one in FIGURES[name])
    return [(one, seed) for one in wanted for seed in range(seeds)]


def groups(wanted: Sequence[Job], most: int) -> list[list[Job]]:
    """At most so many of equal shape, those first that are wanted first."""
    found: list[list[Job]] = []
    for job in wanted:
        fitting = next((one for one in found if one[0][0].shape == job[0].shape and len(one) < most), None)
        if fitting is None:
            found.append([job])
        else:
            fitting.append(job)
    return found


def _work(kept: AppendOnly[Curve], group: list[Job], options: Options) -> Once:
    (first, seed), last = group[0], group[-1]

    def missing() -> list[Job]:
        kept.refresh()
        return [job for job in group if job not in kept.lines]

    def make() -> None:
        curves = train(missing(), options.settings, options.device)
        kept.append(curves)
        for curve in curves:
            print(f"{curve.configuration.name}, seed {curve.seed}: {curve.losses[-1]:.4g} at the end", flush=True)

    claim = f".{first.name} {seed} to {last[0].name} {last[1]}".replace(" ", "-").replace(",", "")
    return Once(options.out / claim, lambda: not missing(), make)


def _begin(options: Options, command: str) -> None:
    """Everything in one folder is trained with the same settings."""
    options.out.mkdir(parents=True, exist_ok=True)
    file, now = options.out / "settings.json", asdict(options.settings)
    if file.exists():
        before = json.loads(file.read_text())["settings"]
        if differing := [f"{key} was {before.get(key)}, now {now[key]}" for key in now if before.get(key) != now[key]]:
            raise BadInput(f"{options.out} was begun with other settings ({', '.join(differing)}); give another --out")
        return
    facts = {"command": command, "made_with": made_with(options.device), "settings": now}
    write_whole(file, json.dumps(facts, indent=1) + "\n")


def _facts(options: Options) -> dict[str, Any]:
    file = options.out / "settings.json"
    require(file.exists(), f"nothing is trained in {options.out} yet; run the same command without --page first")
    return json.loads(file.read_text())  # type: ignore[no-any-return]


def _file(options: Options) -> Path:
    return options.out / "curves.jsonl"


def options_from(arguments: list[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the experiment")
    parser.add_argument("--figure", dest="figures", nargs="+", choices=list(FIGURES), default=list(FIGURES))
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="models a curve")
    parser.add_argument("--together", type=int, default=len(SEEDS), help="models trained side by side")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--page", action="store_true", help="write the page of what is trained, and train nothing")
    for one in fields(Settings):
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    given = vars(parser.parse_args(arguments))
    settings = Settings(**{one.name: given.pop(one.name) for one in fields(Settings)})
    return Options(**{**given, "figures": tuple(given["figures"])}, settings=settings)


def main() -> int:
    command = f"python -m experiments.output_alignment.synthetic {shlex.join(sys.argv[1:])}"
    return exit_status(lambda: run(options_from(), command))


if __name__ == "__main__":
    sys.exit(main())
