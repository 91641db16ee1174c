"""What is kept of the runs, a line each.

OUT/trials.jsonl      learning rates tried      OUT/results.jsonl    a run after so many steps
OUT/answers.jsonl     BABILong, a cell a line
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.output_alignment.fine_tuning_grid import Run, Setting
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.training.output_alignment.fused import SCE

TRIALS, RESULTS, ANSWERS = "trials.jsonl", "results.jsonl", "answers.jsonl"


@dataclass(frozen=True)
class Trial:
    """A learning rate, tried with alpha 0 on text that is then held back from the tables."""

    adjustment: str
    factor: int  # length trained at, in the model's own
    rate: float
    steps: int
    nll: float | None  # mean at twice the model's own length, nats; None where it is not finite

    @property
    def key(self) -> tuple[str, float]:
        return self.adjustment, self.rate


@dataclass(frozen=True)
class Result:
    """A run after so many steps."""

    adjustment: str
    factor: int
    sampling: str
    alpha: float
    seed: int
    steps: int
    rate: float
    nll: list[list[float]]  # [lengths][streams], mean of each stream in nats; a length is empty where one is not finite
    sce: float | None  # L_misalign at the length trained at, of the last step only
    kl: float | None  # its symmetric KL
    seconds: float  # of the whole run
    compare: str = SCE  # lines that do not say are of before there was another

    @property
    def run(self) -> Run:
        return Run(Setting(self.adjustment, self.factor, self.sampling, self.compare), self.alpha, self.seed)

    @property
    def key(self) -> tuple[str, int]:
        return self.run.name, self.steps


@dataclass(frozen=True)
class Answers:
    """One cell of BABILong after the last step."""

    run: str
    alpha: float
    seed: int
    kind: str  # qa1 ... qa5
    factor: int  # length of the prompt and its answer, in the model's own training lengths
    depth: float | None  # of the facts; None where they are spread
    generated: list[int]  # 1 where the answer written is right
    likeliest: list[int]  # 1 where of the answers to choose from the right one is the likeliest
    chance: float  # of a likeliest one that is right by chance, in the mean

    @property
    def key(self) -> tuple[str, str, int, float | None]:
        return self.run, self.kind, self.factor, self.depth


class Records:
    """Shared with other processes."""

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.trials = AppendOnly(out / TRIALS, Trial)
        self.results = AppendOnly(out / RESULTS, Result)
        self.answers = AppendOnly(out / ANSWERS, Answers)

    def tried(self, adjustment: str, rate: float) -> bool:
        self.trials.refresh()
        return (adjustment, rate) in self.trials.lines

    def has(self, run: Run, last: int) -> bool:
        """Its lines are written together, and answers before them."""
        self.results.refresh()
        return (run.name, last) in self.results.lines


@dataclass(frozen=True)
class Found:
    """All lines of a folder."""

    trials: list[Trial]
    results: list[Result]
    answers: list[Answers]

    @classmethod
    def in_(cls, out: Path) -> Found:
        answers = read_lines(out / ANSWERS, Answers)
        return cls(read_lines(out / TRIALS, Trial), read_lines(out / RESULTS, Result), answers)
