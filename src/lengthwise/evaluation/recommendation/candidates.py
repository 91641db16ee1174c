"""What could help a model at a length: methods that need no calibration, and temperatures that are calibrated first."""

from __future__ import annotations

from dataclasses import dataclass

from lengthwise.models.anatomy import Anatomy

LAWS = ("log", "infoscale")  # temperatures by a law
HEDGES = "hedges (no recipe can hold one)"


@dataclass(frozen=True)
class Calibration:
    """A temperature that `calibrate` finds; on top of `method` where positions must be brought into range first."""

    statistic: str
    scope: str
    method: str = "none"

    @property
    def name(self) -> str:
        aligned = f"{self.statistic}-{self.scope}"
        return aligned if self.method == "none" else f"{self.method}+{aligned}"


def is_rotary(anatomy: Anatomy) -> bool:
    return "base" in anatomy.facts


def specs(anatomy: Anatomy, length: int) -> list[str]:
    """Specs of methods that need no calibration, with options for this length; those that helped most elsewhere come first."""
    if not is_rotary(anatomy):
        return list(LAWS)
    factor, window = stretch(anatomy, length), max(1, anatomy.train_length // 2)
    # Of the distances beyond the window so much is left that all stay within the training length
    leak = -(-(length - window) // (anatomy.train_length - window))
    # The smallest group with which the same holds beyond a quarter of it
    neighbours = max(1, anatomy.train_length // 4)
    group = min(-(-(length - neighbours) // (anatomy.train_length - neighbours)), neighbours)
    # Three of four models find more far back with it than with what the length asks for (experiments/decoders)
    twice = stretch(anatomy, 2 * length)
    listed = [
        f"yarn:factor={factor}",
        f"yarn:factor={twice}",
        f"rerope:window={window}",
        f"rerope:window={window},leak={leak}",
        "streaming_llm",
        f"self_extend:group={group},window={neighbours}",
        "dual_chunk",
        "yarn:dynamic=true",
        f"rerope:window={window}+log",
        f"yarn:factor={factor}+log",
        "ntk:dynamic=true",
        f"ntk:factor={factor}",
        "lm_infinite",
        "log",
    ]
    return list(dict.fromkeys(listed))


def calibrations(anatomy: Anatomy, length: int) -> list[Calibration]:
    """Temperatures worth calibrating for this model, the cheapest first."""
    if is_rotary(anatomy):
        yarn = f"yarn:factor={stretch(anatomy, length)}"
        return [Calibration("answers", scope, method=yarn) for scope in ("model", "head")]
    measured = [Calibration("pmax", "layer"), Calibration("pmax", "model"), Calibration("entropy", "model")]
    return [*measured, Calibration("answers", "model"), Calibration("answers", "head")]


def stretch(anatomy: Anatomy, length: int) -> int:
    """How many times the training length, rounded up."""
    return -(-length // anatomy.train_length)
