"""What one model of the experiment is trained with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lengthwise.errors import require
from lengthwise.models.gau_alpha import GAUAlphaConfig

LAYERS, LENGTH = 6, 64


@dataclass(frozen=True)
class Configuration:
    """One run; a tuned one, by PoSE or under a method, starts from the weights of its base."""

    cos_scale: float | None = None
    normalisation: str = "softmax"
    positions: str = "rope"
    pose: int | None = None  # PoSE's target length
    method: str | None = None  # a spec that is in place while the model is trained
    alibi_slope: float | None = None  # another one than ALiBi's own

    def __post_init__(self) -> None:
        turns = self.positions == "rope" or self.pose is None
        require(turns, f"PoSE moves rotary positions, and a model with {self.positions} has none")
        slopes = self.positions == "alibi" or self.alibi_slope is None
        require(slopes, f"a slope of {self.alibi_slope} is for ALiBi, and this model has {self.positions}; ask for alibi")

    @property
    def name(self) -> str:
        """Of its folder."""
        parts = [self.positions]
        if self.alibi_slope is not None:
            parts.append(f"slope{self.alibi_slope:g}")
        if self.cos_scale is not None:
            parts.append(f"cos{self.cos_scale:g}")
        if self.normalisation != "softmax":
            parts.append(self.normalisation)
        if self.pose is not None:
            parts.append(f"pose{self.pose}")
        if self.method is not None:
            parts.append(self.method.replace(":", "-").replace("=", "").replace(",", "-"))
        return "-".join(parts)

    @property
    def base(self) -> Configuration | None:
        """Whose weights it starts from; None for one that starts from nothing."""
        tuned = self.pose is not None or self.method is not None
        return replace(self, pose=None, method=None) if tuned else None

    def model_config(self, length: int, **sizes: Any) -> GAUAlphaConfig:
        own = {"cos_scale": self.cos_scale, "normalisation": self.normalisation, "positions": self.positions}
        if self.alibi_slope is not None:
            own["alibi_slope"] = self.alibi_slope
        return GAUAlphaConfig(**{"num_hidden_layers": LAYERS, "max_position_embeddings": length, **own, **sizes})
