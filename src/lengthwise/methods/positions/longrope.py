"""LongRoPE: every frequency is divided by a factor of its own, found by search, once an input outgrows the training length.

    theta'_i = theta_i / lambda_i                                   Ding et al. 2024
    g        = 1 + ln s / ln n_train                                cos and sin of queries and of keys by its root

`factors` is a JSON file: a config.json or its `rope_parameters`, with `long_factor` and, perhaps, `short_factor`; a list of
long factors; or what `lengthwise calibrate MODEL --length N --search longrope --out factors.json` found by needles. s is
`factor`, or what the file says; its `attention_factor`, unless `factor` is given, is the root of g. With short factors all is
as transformers computes it: they and g serve inputs up to the training length. Without, those are left alone. Of a model that
rotates a part of every key transformers sharpens that part alone; here g multiplies all of the logit.

Paper: Ding et al. 2024, arXiv:2402.13753
Paper: Shang et al. 2025 (LongRoPE2), arXiv:2502.20082
Code: https://github.com/microsoft/LongRoPE
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NotRequired

import torch
from torch import Tensor
from typing_extensions import TypedDict

from lengthwise.common.formats import MustBe, checked, read_json
from lengthwise.errors import BadInput, require


def _divides(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


Factors = Annotated[
    list[float],
    MustBe("a list of numbers above 0", lambda value: isinstance(value, list) and value and all(map(_divides, value))),
]
Number = Annotated[float, MustBe("a number above 0", _divides)]


class RopeParameters(TypedDict):
    """What of a config's rope parameters is read."""

    long_factor: Factors
    short_factor: NotRequired[Factors | None]
    factor: NotRequired[Number | None]
    attention_factor: NotRequired[Number | None]
    original_max_position_embeddings: NotRequired[Number | None]
    max_position_embeddings: NotRequired[Number | None]


@dataclass(frozen=True)
class LongRoPE:
    train_length: int
    long_factor: tuple[float, ...]  # one a pair
    short_factor: tuple[float, ...] | None
    g: float  # from the training length on, or everywhere where there are short factors

    dynamic = True

    layers_agree = True

    @classmethod
    def load(cls, factors: str, train_length: int, factor: float | None = None) -> LongRoPE:
        """Read the file of factors."""
        require(train_length > 1, f"longrope needs train_length > 1, not {train_length}")
        told = _read(factors)
        trained = told.get("original_max_position_embeddings") or train_length
        found = f"the factors of {factors} were found for a training length of {trained:g}, and this model's is {train_length}"
        require(trained == train_length, f"{found}; give the right one (--train-length)")
        longest = told.get("max_position_embeddings") or math.nan
        root = told.get("attention_factor") if factor is None else None
        stretch = told.get("factor") or longest / train_length if factor is None else factor
        unknown = root is None and math.isnan(stretch)
        require(
            not unknown, f"{factors} does not tell how many times longer inputs get; write longrope:factors=FILE,factor=..."
        )
        fits = math.isnan(stretch) or 1 <= stretch < math.inf
        require(fits, f"longrope needs factor >= 1, not {stretch:g}: inputs get that many times longer")
        g = 1 + math.log(stretch) / math.log(train_length) if root is None else root**2
        short = told.get("short_factor")
        return cls(train_length, tuple(told["long_factor"]), None if short is None else tuple(short), g)

    @property
    def stock_rotation(self) -> dict[str, object]:
        """The `rope_parameters` of a config.json that do this; the attention factor is theirs up to the training length too."""
        factors = {"long_factor": [*self.long_factor], "short_factor": [*(self.short_factor or [1.0] * len(self.long_factor))]}
        trained = {"original_max_position_embeddings": self.train_length}
        return {"rope_type": "longrope", **factors, **trained, "attention_factor": math.sqrt(self.g)}

    def frequencies(self, trained: Tensor, length: int) -> Tensor:  # [pairs] -> [pairs]
        factors = self.long_factor if length > self.train_length else self.short_factor
        if factors is None:
            return trained
        pairs = len(trained)
        require(len(factors) == pairs, f"longrope has factors for {len(factors)} pairs, and this model rotates {pairs}")
        return (trained / torch.tensor(factors, dtype=torch.float64, device=trained.device)).to(trained.dtype)

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:  # [..., rows] -> [..., 1]
        widest = visible.amax(-1, keepdim=True)
        g = torch.full_like(widest, self.g, dtype=torch.float32)
        return g if self.short_factor is not None else torch.where(widest > self.train_length, g, 1.0)

    def leaves_alone(self, length: int) -> bool:
        return length <= self.train_length and self.short_factor is None

    def to_json(self) -> dict[str, Any]:
        return {"longrope": asdict(self)}


def _read(path: str) -> RopeParameters:
    """The rope parameters of a file; older configs call them `rope_scaling` and keep lengths beside them."""
    try:
        document = read_json(path)
        if isinstance(document, list):
            document = {"long_factor": document}
        elif isinstance(document, dict):
            rope = document.get("rope_parameters") or document.get("rope_scaling")
            document = {**document, **rope} if isinstance(rope, dict) else document
        return checked(RopeParameters, document)
    except FileNotFoundError:
        raise BadInput(f"no file of factors {path}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} holds no factors of LongRoPE: {error}") from None
