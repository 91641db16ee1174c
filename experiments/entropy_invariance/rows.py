"""The rows of Table 1: which trained model each one asks, and under which method.

Methods are those of their own papers, with the paper's numbers; where it tuned a model for a method, so do we.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.entropy_invariance.configuration import Configuration
from experiments.entropy_invariance.paper import SCALE, WINDOW_SCALE


@dataclass(frozen=True)
class Recipe:
    """How a method is used."""

    spec: str = "none"  # while it is evaluated
    positions: str = "rope"
    pose: int | None = None
    tuned: bool = False  # the model is tuned under `spec`
    scale: float = SCALE


METHODS = {
    "pi": Recipe("interpolation:factor=4", tuned=True),
    "alibi": Recipe(positions="alibi"),
    "pose": Recipe(pose=4096),
    "streaming_llm": Recipe("streaming_llm:sinks=4"),
    "yarn16": Recipe("yarn:factor=16", tuned=True),
    "yarn32": Recipe("yarn:factor=32", tuned=True),
    "window": Recipe("window", scale=WINDOW_SCALE),
    "lm_infinite": Recipe("lm_infinite:sinks=5"),
    "rerope": Recipe("rerope"),
    "gau": Recipe(),
}


@dataclass(frozen=True)
class Row:
    method: str
    cos: bool  # a model trained with CosScale
    info: bool  # InfoScale at evaluation

    @property
    def configuration(self) -> Configuration:
        """Of the model that is asked."""
        recipe = METHODS[self.method]
        return Configuration(
            cos_scale=recipe.scale if self.cos else None,
            positions=recipe.positions,
            pose=recipe.pose,
            method=recipe.spec if recipe.tuned else None,
        )

    @property
    def spec(self) -> str:
        own = METHODS[self.method].spec
        if not self.info:
            return own
        return "infoscale" if own == "none" else f"{own}+infoscale"

    @property
    def label(self) -> str:
        extra = [name for name, has in (("CosScale", self.cos), ("InfoScale", self.info)) if has]
        return " + ".join([self.method, *extra])


ROWS = tuple(
    Row(method, cos, info) for method in METHODS for cos, info in ((False, False), (True, False), (False, True), (True, True))
)
