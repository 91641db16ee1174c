"""Install a method on a loaded model, run, restore the model bit for bit.

    with lengthwise.extend(model, "infoscale"):
        model.generate(...)

Nesting adds methods, as `+` in a spec does. Nothing of transformers is changed outside the `with`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from typing import Any

from torch import nn

from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.attention_interface import registered
from lengthwise.models.forward_checks import check_caches, check_lengths, prove_reached
from lengthwise.models.install import install
from lengthwise.models.layer import Observer
from lengthwise.models.patches import Patches
from lengthwise.models.suitability import Method as Method
from lengthwise.models.suitability import refuse_unreachable, suitable_slots


class Extension(ContextDecorator):
    """What `extend` returns: nothing is done to the model before it is entered. It may be entered again."""

    def __init__(self, make: Callable[[], AbstractContextManager[nn.Module]]) -> None:
        self._make, self._entered = make, False
        self._open: list[AbstractContextManager[nn.Module]] = []

    def __enter__(self) -> nn.Module:
        self._entered = True
        inner = self._make()
        model = inner.__enter__()
        self._open.append(inner)
        return model

    def __exit__(self, *raised: Any) -> bool | None:
        return self._open.pop().__exit__(*raised)

    def __del__(self) -> None:
        if not self._entered:
            warnings.warn("extend(...) does nothing by itself: write `with lengthwise.extend(...):`", stacklevel=2)


def extend(
    model: nn.Module,
    method: Method = "none",
    *,
    train_length: int | None = None,
    implementation: str = "auto",
    observer: Observer | None = None,
    force: bool = False,
) -> Extension:
    """`method` is a spec, a method object, or several. `force` accepts what was not made for this model.

    Two threads may extend two models at the same time, but not run one. A backward that computes layers again (gradient
    checkpointing) belongs inside the `with`.
    """

    @contextmanager
    def extended() -> Iterator[nn.Module]:
        anatomy = anatomy_of(model, train_length)
        slots = suitable_slots(anatomy, method, force)
        refuse_unreachable(model, anatomy)
        patches = Patches()
        with registered(), patches.on(model):
            unrotated = install(patches, model, anatomy, slots, implementation, observer)
            prove_reached(patches, anatomy)
            check_caches(patches, anatomy, unrotated)
            check_lengths(patches, anatomy, slots)
            yield model

    return Extension(extended)
