"""What is trained for Output Alignment's synthetic figures, and what is kept of every trained model."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass

from lengthwise.models.small_decoder import POSITIONS
from lengthwise.training.output_alignment.outrep import OutRep

TRAIN_LENGTH, TEST_LENGTH = 10, 50
# The paper's three, and one of ours: see bits_findings
FUNCTIONS = ("identity", "sqrt", "log", "rsqrt", "reciprocal")
SEEDS = range(5)


@dataclass(frozen=True)
class Configuration:
    """One curve of a figure."""

    target: str
    positions: str = "nope"
    function: str = "identity"
    kind: str = "uniform"  # of the bits
    train_length: int = TRAIN_LENGTH

    @property
    def name(self) -> str:
        return f"{self.target}, {self.positions}, {self.function}, {self.kind} bits, up to {self.train_length}"

    @property
    def outrep(self) -> OutRep:
        """A sum can be 0, where log and 1/sqrt have no value: there 1 is added to it."""
        return OutRep(self.function, shift=1.0 if self.target == "sum" and self.function != "identity" else 0.0)

    @property
    def shape(self) -> tuple[str, int]:
        """Models that agree in it can be trained side by side."""
        return self.positions, self.train_length


@dataclass(frozen=True)
class Curve:
    """One trained model: its errors at every test length, in the units of the target."""

    target: str
    positions: str
    function: str
    kind: str
    train_length: int
    seed: int
    steps: int
    train_loss: float  # of the last steps, in the units of f(y)
    losses: list[float]  # mean squared errors at lengths 1, 2, ...
    answers: list[float]  # mean answers there
    cpu_seconds: float  # its share of what was trained side by side

    @property
    def configuration(self) -> Configuration:
        return Configuration(self.target, self.positions, self.function, self.kind, self.train_length)

    @property
    def key(self) -> Hashable:
        return self.configuration, self.seed

    @classmethod
    def of(cls, configuration: Configuration, **found: object) -> Curve:
        return cls(**asdict(configuration), **found)  # type: ignore[arg-type]


# In the order in which they are trained; a configuration of several figures is trained once
FIGURES: dict[str, tuple[Configuration, ...]] = {
    "1c": tuple(Configuration("length", function=function) for function in FUNCTIONS),
    "1a": tuple(Configuration("mean", positions) for positions in reversed(POSITIONS)),
    "1b": tuple(Configuration("length", positions) for positions in reversed(POSITIONS)),
    "5": tuple(Configuration("mean", positions, kind="uniform ones") for positions in reversed(POSITIONS)),
    "4b": tuple(Configuration("sum", function=function) for function in FUNCTIONS),
    "4a": tuple(Configuration("sum", positions) for positions in reversed(POSITIONS)),
    "3b": tuple(Configuration("length", train_length=longest) for longest in (10, 20, 30)),
    "3a": tuple(Configuration("sum", train_length=longest) for longest in (10, 20, 30)),
}
