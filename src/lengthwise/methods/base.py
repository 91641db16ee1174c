"""The contract of a method: the function of each slot, and what else a method may say about itself.

    logit(i, j) = g(n) * (similarity(rotate(q_i), rotate(k_j)) + bias(p_j - p_i)),   j in visible(i)

A method is any object with at least one of the functions below; there is no class to inherit from and nothing to register. Its
functions say which slots it fills. Arguments are passed by position, so their names are free.

| slot        | protocol               | function              |
|-------------|------------------------|-----------------------|
| temperature | `Temperature`          | `inverse_temperature` |
|             | `AdaptiveTemperature`  | `adaptive_sharpness`  |
| similarity  | `Similarity`           | `similarity`          |
| rotation    | `FrequencyRotation`    | `frequencies`         |
|             | `PartsRotation`        | `distances`           |
| bias        | `Bias`                 | `distance_bias`       |
| visible     | `NarrowedVisibility`   | `narrow`              |
|             | `SegmentedVisibility`  | `segments`            |

Everything else is optional. Each optional member is read by one function of this file and nowhere else, and has a default:

| member              | default            | read by            | for                                                       |
|---------------------|--------------------|--------------------|-----------------------------------------------------------|
| `name`              | the class's name   | `method_name`      | error messages                                            |
| `leaves_alone(n)`   | False              | `leaves_alone`     | short inputs that run on the model's own code, bit for bit |
| `layers_agree`      | False              | `layers_agree`     | a law of n that is asked once a forward, not in every layer |
| `dynamic`           | False              | `follows_length`   | frequencies that depend on the length of the input        |
| `max_distance`      | no limit           | `bias_radius`      | a bias that is constant from some distance on             |
| `sinks_and_window`  | None: all are kept | `sinks_and_window` | caches that drop keys no row will see again               |
| `fingerprint`       | {}: any model      | `fingerprint_of`   | methods made for one model                                |
| `check_fits(l, h)`  | fits every model   | `check_fits`       | methods with a number for each layer or head              |
| `stock_rotation`    | None               | `stock_rotation`   | rotations that a stock checkpoint's config can ask for    |
| `acts_on(layer)`    | all layers         | `acts_on`          | rotations that leave some layers, counted from 0, alone   |
| `factor`            | None               | `stretch_of`       | rotations for inputs of so many training lengths          |
| `to_json()`         | None               | `file_contents_of` | methods read from a file: what the file said              |
| `learns_alone`      | False              | `learns_alone`     | trained methods that leave the weights of the model alone |

A method with parameters to train is an `nn.Module`; its weights stand in `file_contents_of` as a digest, and so does the source
of a method that is a plug-in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from lengthwise.attention.parts import Part
from lengthwise.attention.segments import Span
from lengthwise.attention.visible import Visible
from lengthwise.common.plugins import code_of


@runtime_checkable
class Temperature(Protocol):
    """Multiplies the whole logit, bias included, by g = 1/tau, a law of the number of keys that a row sees."""

    def inverse_temperature(self, visible: Tensor, layer: int, /) -> Tensor:
        """n [batch, 1, rows] -> g in float32: [batch, 1, rows], or [batch, heads, rows] where heads differ.

        A last axis of 1 stands for one g in all rows of a sequence.
        """


@runtime_checkable
class AdaptiveTemperature(Protocol):
    """Multiplies the whole logit by a g that follows the row's entropy under all laws of n together."""

    def adaptive_sharpness(self, entropy: Tensor, layer: int, /) -> Tensor:
        """H [batch, heads, rows], in nats -> g of the same shape."""


@runtime_checkable
class Similarity(Protocol):
    """Replaces q.k/sqrt(d) by another product of what it makes of queries and keys."""

    def similarity(self, query: Tensor, key: Tensor, /) -> tuple[Tensor, Tensor, float]:
        """Unrotated queries and keys [batch, heads, tokens, key_size] -> the same shapes, and the factor of their product."""


@runtime_checkable
class FrequencyRotation(Protocol):
    """Turns the pairs of queries and keys at other frequencies than the model's own."""

    def frequencies(self, trained: Tensor, length: int, /) -> Tensor:
        """The model's radians a token [pairs] -> the method's [pairs].

        `length` is how many keys the sequence's widest row sees where the method is `dynamic`, else the training length.
        """


@runtime_checkable
class PartsRotation(Protocol):
    """Rotates queries and keys as if they stood elsewhere, some keys of a row differently from others."""

    def distances(self, seen: Visible, whole: Visible, /) -> Sequence[Part]:
        """Disjoint parts of each row, with the positions at which their queries and keys are rotated.

        `whole` is what the model's own mask shows; `seen` is what is left of it when a method narrows what rows see. The parts
        may have fewer keys than `seen`, or more, out of `whole`.
        """


@runtime_checkable
class Bias(Protocol):
    """Adds a number to the logit that depends on the head and on how far the key stands from the query."""

    def distance_bias(self, heads: int, radius: int, /) -> Tensor:
        """The table [heads, 2 * radius + 1] over distances key - query from -radius to radius; its ends hold beyond."""


@runtime_checkable
class NarrowedVisibility(Protocol):
    """Hides keys from rows."""

    def narrow(self, whole: Visible, /) -> Visible:
        """What the model's own mask shows -> one run of it for each row. More runs a row need `distances` as well."""


@runtime_checkable
class SegmentedVisibility(Protocol):
    """Cuts whole sequences into spans of tokens that see only one another; for training, and causal models."""

    def segments(self, length: int, /) -> Sequence[Sequence[Span]]:
        """The spans of 0 ... length - 1 for each equal share of the heads."""


Rotation = FrequencyRotation | PartsRotation
Visibility = NarrowedVisibility | SegmentedVisibility


@dataclass(frozen=True)
class SinksAndWindow:
    """The keys that rows of an ever longer sequence see: its first few, and the most recent."""

    sinks: int
    window: int  # the row's own key included
    # Whether a cache may drop the keys between the two: not where sinks are rotated at their true distance
    rolls: bool = True
    # Whether the sinks stand just before the window, so that all keys stand in line: then a cache keeps them rotated
    in_line: bool = False


def method_name(method: object) -> str:
    """What error messages call the method."""
    return str(getattr(method, "name", type(method).__name__))


def leaves_alone(method: object, length: int) -> bool:
    """Whether rows that see up to `length` keys keep exactly the model's own equation.

    Only methods that are more than a law of n are asked; one that says nothing leaves no length alone.
    """
    says = getattr(method, "leaves_alone", None)
    return says is not None and bool(says(length))


def layers_agree(method: object) -> bool:
    """Whether the method's temperature is the same in all layers."""
    return bool(getattr(method, "layers_agree", False))


def follows_length(method: object) -> bool:
    """Whether the method's frequencies depend on the input's length; then keys are cached unrotated."""
    return bool(getattr(method, "dynamic", False))


def bias_radius(method: object, keys: int) -> int:
    """The largest distance that a table of the method's bias needs for so many keys."""
    return min(keys, getattr(method, "max_distance", keys))


def sinks_and_window(method: object) -> SinksAndWindow | None:
    """What the method shows of an ever longer sequence, if it is some first and some recent keys."""
    return getattr(method, "sinks_and_window", None)


def fingerprint_of(method: object) -> dict[str, Any]:
    """The model that the method was made for; empty where it suits any."""
    return getattr(method, "fingerprint", {})


def check_fits(method: object, layers: int, heads: int) -> None:
    """Let the method raise BadInput where it cannot serve a model of so many layers, of so many heads each."""
    if (refuse := getattr(method, "check_fits", None)) is not None:
        refuse(layers, heads)


def stock_rotation(method: object) -> dict[str, Any] | None:
    """The `rope_parameters` of a config.json with which a stock model computes the method's rotation, if there are any.

    `rope_theta` may be left out: it is then the model's own.
    """
    return getattr(method, "stock_rotation", None)


def acts_on(method: object, layer: int) -> bool:
    """Whether the method, a rotation, is for this layer."""
    says = getattr(method, "acts_on", None)
    return says is None or bool(says(layer))


def stretch_of(method: object) -> float | None:
    """For how many training lengths the method, a rotation, was made; None where it does not say."""
    factor = getattr(method, "factor", None)
    return None if factor is None else float(factor)


def learns_alone(method: object) -> bool:
    """Whether training moves what the method learns and leaves the weights of the model as they are, LoRA's aside."""
    return bool(getattr(method, "learns_alone", False))


def file_contents_of(methods: Iterable[object]) -> Any:
    """What methods were read from, as JSON: one document, a list of several, or None.

    The name of a file stays when its content changes, and a run must not mix two contents.
    """
    methods = list(methods)
    codes = [code for method in methods if (code := code_of(method)) is not None]
    documents = codes + [document for method in methods if (document := _document(method)) is not None]
    return documents if len(documents) > 1 else next(iter(documents), None)


def _document(method: object) -> Any:
    """The content of the method's file, or a digest of its weights."""
    if (to_json := getattr(method, "to_json", None)) is not None:
        return to_json()
    if not isinstance(method, nn.Module):
        return None
    digest = hashlib.sha256()
    for name, value in sorted(method.state_dict().items()):
        digest.update(name.encode())
        # numpy knows no bfloat16
        digest.update(value.detach().cpu().double().contiguous().numpy().tobytes())
    return {"weights": digest.hexdigest()[:16]}
