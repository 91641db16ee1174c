"""DPE: Self-Extend with a group of its own for each eighth of the frequencies, so that each keeps to distances it knows.

    distance'(i, j) = i - j                                           below w       Lu et al. 2025
                    = floor(i/s_g) - floor(j/s_g) + w - floor(w/s_g)  from there on, in the pairs of share g

`scales` are s_0-...-s_7 from the fastest frequencies to the slowest, by default those that the authors found for Llama 3 8B
(8,192 tokens) at 131,072; there are as many shares as numbers. `window` is w, by default 1,024 or at most a quarter of the
training length. `lengthwise calibrate MODEL --length N --search dpe --out scales.json` detects a model's scales by needles,
and `dpe:scales=scales.json` reads them. Places count from the start of the row's own sequence. The authors may scale some pairs
only, chosen head by head by the size of queries and keys; here all are scaled.

Paper: Lu et al. 2025, arXiv:2504.18857
Code: https://github.com/LuLuLuyi/DPE
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import torch
from torch import Tensor
from typing_extensions import TypedDict

from lengthwise.attention.parts import Part, as_they_stand, near_and_far, with_keys
from lengthwise.attention.visible import Visible
from lengthwise.common.formats import MustBe, Whole, checked, read_json
from lengthwise.errors import BadInput, require

SCALES = "4-4-2-16-32-32-16-128"


class ScalesFile(TypedDict):
    """What of a file of scales is read."""

    scales: Annotated[list[int], MustBe("a list of whole numbers from 1 on", lambda value: _counts(value) and len(value) > 0)]
    window: Whole
    train_length: Whole


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(scale) is int and scale >= 1 for scale in value)


@dataclass(frozen=True)
class DPE:
    train_length: int
    rotary_size: int
    scales: str = SCALES
    window: int = None  # type: ignore[assignment]  # a number once the method is made
    from_file: bool = False

    @classmethod
    def load(cls, train_length: int, rotary_size: int, scales: str = SCALES, window: int | None = None) -> DPE:
        """`scales` are the numbers themselves, or a JSON file of them."""
        if not scales.endswith(".json"):
            return cls(train_length, rotary_size, scales, window)  # type: ignore[arg-type]
        told = _read(scales)
        found = f"the scales of {scales} were found for a training length of {told['train_length']}"
        fits = told["train_length"] == train_length
        require(fits, f"{found}, and this model's is {train_length}; give the right one (--train-length)")
        joined = "-".join(map(str, told["scales"]))
        return cls(train_length, rotary_size, joined, told["window"] if window is None else window, from_file=True)

    def __post_init__(self) -> None:
        if self.window is None:
            object.__setattr__(self, "window", min(1024, max(1, self.train_length // 4)))
        require(
            1 <= self.window < self.train_length,
            f"dpe needs a window from 1 to below the training length {self.train_length}, not {self.window}",
        )
        fits = all(scale >= 1 for scale in self._scales)
        require(fits, f"dpe needs scales >= 1, not {self.scales}: so many far keys share a position")

    @cached_property
    def _scales(self) -> list[int]:
        try:
            return [int(scale) for scale in self.scales.split("-")]
        except ValueError:
            raise BadInput(f"dpe needs scales as whole numbers joined by -, as in 4-4-2-16, not {self.scales!r}") from None

    @cached_property
    def _scale_of_pair(self) -> list[int]:
        """The scale of every pair."""
        pairs = self.rotary_size // 2
        return [self._scales[pair * len(self._scales) // pairs] for pair in range(pairs)]

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        near, before, behind = near_and_far(seen, self.window)
        scale = torch.tensor(self._scale_of_pair).to(seen.device, non_blocking=True)
        query, key = (_grouped(place, scale) for place in whole.places)
        beyond = self.window - self.window // scale
        return with_keys([as_they_stand(near), Part(before, query + beyond, key), Part(behind, query - beyond, key)])

    def leaves_alone(self, length: int) -> bool:
        return length <= self.window or set(self._scales) == {1}

    def to_json(self) -> dict[str, Any] | None:
        return {"dpe": {"scales": self.scales, "window": self.window}} if self.from_file else None


def _read(path: str) -> ScalesFile:
    try:
        return checked(ScalesFile, read_json(path))
    except FileNotFoundError:
        raise BadInput(f"no file of scales {path}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} holds no scales of DPE: {error}") from None


def _grouped(place: Tensor, scale: Tensor) -> Tensor:  # [batch, tokens], [pairs] -> [batch, 1, tokens, pairs]
    return place[:, None, :, None] // scale
