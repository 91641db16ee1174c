"""Aligned: the calibrated temperatures of one model, as a table over length.

    g(n) = 1                                       up to the training length, exactly
    g(n) linear in ln n between calibrated lengths, so that a log law is represented without error
    g(n) = the last value beyond the last calibrated length, and a warning says so once

The values come from Chi et al.'s Algorithm 1, or from answers (see `lengthwise.calibrate`): one for the model, one a layer, or
one a layer and head. The file format is `lengthwise.alignment/1`; its `digest` tells whether a value was changed since.

Paper: Chi et al. 2023, arXiv:2311.00684
Code: https://github.com/chijames/Attention-Alignment-Transformer-Length-Extrapolation
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, NotRequired

import torch
from torch import Tensor
from typing_extensions import TypedDict

from lengthwise.common.arguments import typed
from lengthwise.common.files import write_whole
from lengthwise.common.formats import Declared, MustBe, Whole, checked, read_json, shown
from lengthwise.errors import BadInput, require
from lengthwise.methods import hub

FORMAT = "lengthwise.alignment/1"
MEASURED = ("pmax", "entropy")  # of attention
STATISTICS = (*MEASURED, "answers")
FINGERPRINT = "the model of an alignment must be its fingerprint"
SCOPES = ("model", "layer", "head")
ROUNDING = 1e-3  # nats
# What calibration found, which a file's digest covers; how it was found does not change what the method computes
COVERED = ("model", "statistic", "scope", "train_length", "target", "temperatures")
# A number for the model, one a layer, or one a layer and head
Table = float | list[float] | list[list[float]]


def _is_table(value: Any, least: float = -math.inf) -> bool:
    if isinstance(value, list):
        return len(value) > 0 and all(_is_table(entry, least) for entry in value)
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < math.inf


def _is_statistic(value: Any) -> bool:
    """P_max and entropy are not below 0, but for the rounding of an entropy of next to nothing."""
    return _is_table(value, -ROUNDING)


TauTable = Annotated[Table, MustBe("a number, or lists of numbers", _is_table)]
StatisticTable = Annotated[Table, MustBe("a number from 0 on, or lists of such numbers", _is_statistic)]


@dataclass(frozen=True)
class Calibrated(Declared):
    """What calibration found at one length."""

    length: int  # keys visible to a row
    tau: TauTable  # the temperature, shaped as the scope says
    statistic: StatisticTable  # the statistic at that temperature; of answers the nats, on cases that were not fitted
    forwards: int  # long forwards it took
    target: StatisticTable | None = None  # what it was solved for: the statistic at the training length on the same text


@dataclass(frozen=True)
class Alignment:
    """A calibrated table of temperatures; a method that fills the temperature slot."""

    statistic: str  # "pmax", "entropy" or "answers"
    scope: str  # "model", "layer" or "head"
    train_length: int
    target: Table  # the statistic at the training length, shaped as the scope says; of the text of the last length
    temperatures: tuple[Calibrated, ...]  # by increasing length
    model: dict[str, Any] = field(default_factory=dict)  # fingerprint of the model it was made for
    provenance: dict[str, Any] = field(default_factory=dict)  # how it was made
    _said: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require(self.statistic in STATISTICS, f"statistic must be one of {', '.join(STATISTICS)}, not {self.statistic!r}")
        require(self.scope in SCOPES, f"scope must be one of {', '.join(SCOPES)}, not {self.scope!r}")
        require(isinstance(self.model, dict), f"{FINGERPRINT}, not {self.model!r}")
        lengths = [entry.length for entry in self.temperatures]
        whole = all(isinstance(length, Integral) for length in (self.train_length, *lengths))
        require(whole, f"the lengths of an alignment must be whole numbers, not {self.train_length!r} and {lengths}")
        require(self.train_length > 1, f"train_length must be above 1, not {self.train_length}")
        require(len(self.temperatures) > 0, "an alignment needs at least one length")
        require(lengths == sorted(set(lengths)), f"the lengths of an alignment must increase, not {lengths}")
        require(lengths[0] > self.train_length, f"length {lengths[0]} is not above the training length {self.train_length}")
        depth = SCOPES.index(self.scope)
        taus = [_tensor(entry) for entry in self.temperatures]
        for length, tau in zip(lengths, taus, strict=True):
            fits = tau.dim() == depth and tau.shape == taus[0].shape and tau.numel() > 0
            require(fits, f"scope {self.scope} needs {depth} levels of lists in tau, alike at all lengths; see length {length}")
            holds = (tau > 0) & tau.isfinite() & (1 / tau).float().isfinite()
            what = "a positive number whose inverse float32 can hold"
            require(bool(holds.all()), f"a tau at length {length} is not {what}")

    @property
    def fingerprint(self) -> dict[str, Any]:
        return self.model

    def check_fits(self, layers: int, heads: int) -> None:
        """Refuse a model of other layers or heads than the table's."""
        shape = torch.tensor(self.temperatures[0].tau).shape
        parts = [f"{size} {what}" for size, what in zip(shape, ("layers", "heads"), strict=False)]
        require(
            shape == (layers, heads)[: len(shape)],
            f"this alignment has temperatures for {' of '.join(parts)}, and this model has {layers} layers of {heads} heads; "
            "calibrate this model",
        )

    @property
    def layers_agree(self) -> bool:
        return self.scope == "model"

    def tau(self, length: int) -> Tensor:
        """The temperature at one length, [] or [layers] or [layers, heads]."""
        return 1 / self._sharpness(torch.tensor(float(length), dtype=torch.float64))

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        if layer == 0:
            self._say_once_when_beyond(visible)
        g = self._sharpness(visible.double())  # [..., rows] + [] or [layers] or [layers, heads]
        if self.scope == "model":
            return g.float()
        g = g[..., layer, :] if self.scope == "head" else g[..., layer]
        # Heads go where [batch, 1, rows] keeps its axis of 1
        return (g.movedim(-1, -2).squeeze(-3) if self.scope == "head" else g).float()

    def _sharpness(self, n: Tensor) -> Tensor:
        """1/tau at every n, the table's own axes behind those of n."""
        taus = torch.tensor([entry.tau for entry in self.temperatures], dtype=torch.float64, device=n.device)
        return interpolate(n, self.train_length, [entry.length for entry in self.temperatures], 1 / taus)

    def _say_once_when_beyond(self, visible: Tensor) -> None:
        last = self.temperatures[-1].length
        if "beyond" in self._said or visible.numel() == 0 or (n := int(visible.max())) <= last:
            return
        self._said.add("beyond")
        warnings.warn(
            f"an input of {n} tokens is beyond the last calibrated length {last}; its temperature is held there. "
            f"Calibrate with --length {n} for a measured one.",
            stacklevel=2,
        )

    def to_json(self) -> dict[str, Any]:
        """What the file holds beside its digest, the keys in their order."""
        return {
            "format": FORMAT,
            "model": self.model,
            "statistic": self.statistic,
            "scope": self.scope,
            "train_length": self.train_length,
            "target": self.target,
            "temperatures": [vars(entry) for entry in self.temperatures],
            "provenance": self.provenance,
        }

    def file_content(self) -> dict[str, Any]:
        return {**self.to_json(), "digest": self.digest}

    @property
    def digest(self) -> str:
        """A short digest of what was calibrated; 1 and 1.0 are the same number."""
        content = self.to_json()
        values = [_with_floats(content[key]) for key in COVERED]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    @typed
    def save(self, path: str | Path) -> None:
        require(bool(self.model), f"{FINGERPRINT}, not {self.model!r}")
        write_whole(path, json.dumps(self.file_content(), indent=2) + "\n")

    def save_pretrained(self, folder: str | Path) -> None:
        """Write alignment.json into a folder; in a model's own, the method `aligned` finds it by itself."""
        self.save(Path(folder) / hub.ALIGNMENT)

    def push_to_hub(self, repository: str, *, private: bool | None = None, token: str | None = None) -> str:
        """Put alignment.json into a repository on the hub, for `@hub:OWNER/NAME`; the address of the commit."""
        require(bool(self.model), f"{FINGERPRINT}, not {self.model!r}")
        return hub.push(repository, hub.ALIGNMENT, json.dumps(self.file_content(), indent=2) + "\n", private, token)

    @classmethod
    def from_pretrained(cls, name: str | Path) -> Alignment:
        """The alignment.json of a folder, or of a repository on the hub."""
        folder = Path(name)
        return cls.load(folder / hub.ALIGNMENT if folder.is_dir() else hub.fetched(f"{hub.PREFIX}{name}/{hub.ALIGNMENT}"))

    @classmethod
    @typed
    def load(cls, path: str | Path) -> Alignment:
        try:
            document = read_json(path)
        except FileNotFoundError:
            raise BadInput(f"no alignment file {path}; make one with `lengthwise calibrate`") from None
        except (OSError, ValueError) as error:
            raise BadInput(f"{path} is not an alignment file: {getattr(error, 'strerror', None) or error}") from None
        return cls.of_document(document, str(path))

    @classmethod
    def of_document(cls, document: Any, path: str) -> Alignment:
        """An alignment out of what its file holds; `path` is for what is said of it."""
        other = document.get("format") if isinstance(document, dict) else None
        if other != FORMAT:
            raise BadInput(f"{path} is not an alignment file: its format is {other!r}, not {FORMAT!r}")
        try:
            content: dict[str, Any] = {**checked(AlignmentFile, document)}
            require(bool(content["model"]), f"{FINGERPRINT}, not {content['model']!r}")
            written = content.pop("digest", None)
            alignment = cls(**{**content, "temperatures": tuple(content["temperatures"])})
        except ValueError as error:
            raise BadInput(f"{path} is damaged: {error}") from None
        require(
            written in (None, alignment.digest),
            f"{path} was changed after it was calibrated{_changed_tau(alignment)}; put the old values back, or take its "
            "'digest' out to use these as your own",
        )
        return alignment


class AlignmentFile(TypedDict):
    """An alignment's file, beside its `format`; keys of later versions are passed over."""

    model: dict[str, Any]
    statistic: str
    scope: str
    train_length: Whole
    target: StatisticTable
    temperatures: list[Calibrated]
    provenance: dict[str, Any]
    digest: NotRequired[str]  # files of earlier versions have none


def _changed_tau(alignment: Alignment) -> str:
    """The first temperature that is none of its search, in words; empty where the provenance does not tell."""
    try:
        taus = {found["length"]: [step["tau"] for step in found["path"]] for found in alignment.provenance["searched"]}
    except (KeyError, TypeError):
        return ""
    for entry in alignment.temperatures:
        if (tried := taus.get(entry.length)) and entry.tau not in tried:
            return f": the tau at length {entry.length} is {shown(entry.tau)}, and its search ended at {shown(tried[-1])}"
    return ""


def _with_floats(value: Any) -> Any:
    """The same with every whole number as a float: 1 and 1.0 are one value."""
    if isinstance(value, dict):
        return {key: _with_floats(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_floats(inner) for inner in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _tensor(entry: Calibrated) -> Tensor:
    try:
        return torch.tensor(entry.tau, dtype=torch.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        what = "a number, or lists of numbers of one length"
        raise BadInput(f"the tau at length {entry.length} is {repr(entry.tau)[:40]}, not {what}") from None


def interpolate(n: Tensor, train_length: int, lengths: list[int], values: Tensor) -> Tensor:
    """g at every n, linear in ln n through 1 at the training length and `values` [lengths, ...] at `lengths`.

    Exactly 1 up to the training length, the last value beyond the last length. The axes of one value follow those of n.
    """
    knots = torch.tensor([train_length, *lengths], device=n.device).double()
    values = torch.cat([torch.ones_like(values[:1]), values])  # [knots, ...]
    inside = n.clamp(knots[0], knots[-1])
    right = torch.searchsorted(knots, inside.contiguous()).clamp(1, len(lengths))
    x0, x1 = knots[right - 1].log(), knots[right].log()
    weight = ((inside.log() - x0) / (x1 - x0)).reshape((*n.shape, *[1] * (values.dim() - 1)))
    g = torch.lerp(values[right - 1], values[right], weight)
    return torch.where((n <= train_length).reshape(weight.shape), torch.ones_like(g), g)
