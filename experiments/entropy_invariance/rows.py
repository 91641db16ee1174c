"""The rows of all tables: which trained model each one asks, and under which method.

Methods are those of their own papers, with the paper's numbers; where it tuned a model for a method, so do we. `RELEASED` are
the same rows with the faults of the code that the paper's numbers come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments._lib.specs import filled
from experiments.entropy_invariance import paper
from experiments.entropy_invariance.configuration import Configuration
from experiments.entropy_invariance.paper import SCALE, SCALES, WINDOW_SCALE, Printed

WORDS = {"infoscale": "InfoScale", "softmax_plus": "softmax plus"}


@dataclass(frozen=True)
class Recipe:
    """How a method is used."""

    spec: str = "none"  # while it is evaluated; {factor} is the length in training lengths
    positions: str = "rope"
    pose: int | None = None
    tuned: str | None = None  # the spec that the model is tuned under
    alibi_slope: float | None = None
    scale: float = SCALE


def tuned(spec: str) -> Recipe:
    return Recipe(spec, tuned=spec)


METHODS = {
    "pi": tuned("interpolation:factor=4"),
    "alibi": Recipe(positions="alibi"),
    "pose": Recipe(pose=4096),
    "streaming_llm": Recipe("streaming_llm:sinks=4"),
    "yarn16": tuned("yarn:factor=16"),
    "yarn32": tuned("yarn:factor=32"),
    "window": Recipe("window", scale=WINDOW_SCALE),
    "lm_infinite": Recipe("lm_infinite:sinks=5"),
    "rerope": Recipe("rerope"),
    "gau": Recipe(),
}
RELEASED = {
    "pi": Recipe("interpolation:factor={factor},as_released=true", tuned="interpolation:factor=4,as_released=true"),
    "alibi": Recipe(positions="alibi", alibi_slope=3.5e-4),
    "streaming_llm": Recipe("streaming_llm:sinks=4,reindex=false"),
    "yarn16": Recipe("yarn:factor={factor}", tuned="yarn:factor=16"),
    "yarn32": Recipe("yarn:factor={factor}", tuned="yarn:factor=32"),
}


@dataclass(frozen=True)
class Row:
    method: str
    cos: float | None = None  # S of a model trained with CosScale
    law: str | None = None  # temperature at evaluation
    released: bool = False  # with the faults of the released code

    @property
    def recipe(self) -> Recipe:
        return (RELEASED if self.released else METHODS)[self.method]

    @property
    def configuration(self) -> Configuration:
        """Of the model that is asked."""
        recipe = self.recipe
        return Configuration(
            cos_scale=self.cos,
            positions=recipe.positions,
            pose=recipe.pose,
            method=recipe.tuned,
            alibi_slope=recipe.alibi_slope,
        )

    def spec(self, length: int, train_length: int) -> str:
        """What the model is extended with at one length."""
        own = filled(self.recipe.spec, {"factor": max(1.0, length / train_length)})
        if self.law is None:
            return own
        return self.law if own == "none" else f"{own}+{self.law}"

    def printed(self, length: int) -> Printed | None:
        """The paper's number, which is that of the released code."""
        return paper.printed(self.method, self.cos, self.law, length)

    @property
    def label(self) -> str:
        own = f"{self.method} as released" if self.released else self.method
        extra = [f"CosScale {self.cos:g}"] if self.cos is not None else []
        return " + ".join([own, *extra, *([WORDS[self.law]] if self.law else [])])


def fourfold(method: str, released: bool = False) -> tuple[Row, ...]:
    """Plain, with CosScale, with InfoScale, with both."""
    scale = METHODS[method].scale
    return tuple(Row(method, cos, law, released) for law in (None, "infoscale") for cos in (None, scale))


def _all_of(methods: Sequence[str], released: bool = False) -> tuple[Row, ...]:
    return tuple(row for method in methods for row in fourfold(method, released))


TABLES = {
    "1": _all_of([method for method in METHODS if method != "gau"]),
    "10": fourfold("gau"),
    "2": tuple(Row("gau", SCALE, law) for law in WORDS),
    "3": tuple(Row("gau", None, law) for law in WORDS),
    "9": tuple(Row("gau", scale) for scale in SCALES),
    "released": _all_of(list(RELEASED), released=True),
}
# Some stand in several tables
ROWS = tuple(dict.fromkeys(row for rows in TABLES.values() for row in rows))
