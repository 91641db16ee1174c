"""Install a method on a loaded model, run, restore the model bit for bit.

    with lengthwise.extend(model, "infoscale"):
        model.generate(...)

Nesting adds methods, as `+` in a spec does. Nothing of transformers is changed outside the `with`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

from torch import nn

from lengthwise.common.arguments import typed
from lengthwise.errors import require
from lengthwise.models.anatomy import anatomy_of, stack_of
from lengthwise.models.attention_interface import register
from lengthwise.models.forward_checks import check_caches, check_lengths, prove_reached
from lengthwise.models.install import install, refuse_copies
from lengthwise.models.layer import Observer
from lengthwise.models.patches import LEFT_FIRST, Patches
from lengthwise.models.suitability import Method as Method
from lengthwise.models.suitability import refuse_unreachable, suitable_slots


class Extension(ContextDecorator):
    """What `extend` returns: nothing is done to the model before it is entered. It may be entered again."""

    def __init__(self, model: nn.Module, patch: Callable[[Patches], None]) -> None:
        self._model, self._patch, self._entered = model, patch, False
        self._open: list[Patches] = []

    def __enter__(self) -> nn.Module:
        self._entered = True
        patches = Patches(stack_of(self._model))
        try:
            self._open.append(patches)
            self._patch(patches)
            return self._model
        except BaseException:
            patches.undo()
            self._open = [other for other in self._open if other is not patches]
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        try:
            patches = self._open[-1]
            patches.undo()
            del self._open[-1]
        except BaseException:
            # An interrupt: what it left undone is done now
            self._open.pop().undo()
            raise
        # Not in the place of an exception that is on its way
        require(kind is not None or patches.ended_in_turn, LEFT_FIRST)

    def __del__(self) -> None:
        # Python ends, and its modules are gone already
        if sys is None:
            return
        if not self._entered:
            warnings.warn("extend(...) does nothing by itself: write `with lengthwise.extend(...):`", stacklevel=2)
        # An interrupt can also come before the first line of `__exit__`
        while self._open:
            if not sys.is_finalizing():
                warnings.warn("an `extend` was dropped before it was left, which ends it; use `with`", stacklevel=2)
            self._open.pop().undo()


@typed
def extend(
    model: nn.Module,
    method: Method = "none",
    *,
    train_length: int | None = None,
    implementation: str = "auto",
    observer: Observer | None = None,
    force: bool = False,
    exact: bool = True,
) -> Extension:
    """Let `model` run `method` inside `with extend(model, method):`; afterwards it is the plain model again.

    `method` is a spec (as "yarn:factor=4" or "@recipe.json"), a method object, or several. The model may be a pipeline's
    `.model`, wrapped by PEFT, spread by `device_map` or in a Trainer. `force` accepts what was not made for this model.

    Inputs up to the training length that the method leaves alone run bit for bit as before; without `exact` they take the
    kernels too, which are faster and differ by roundings.

    All threads and tasks that run the model inside the `with` run the method, in turn; two that extend one model at once are
    refused. A backward that computes layers again (gradient checkpointing) belongs inside the `with`. `save_pretrained` writes
    the plain model, also inside.
    """

    def patch(patches: Patches) -> None:
        anatomy = anatomy_of(model, train_length)
        slots = suitable_slots(anatomy, method, force)
        refuse_unreachable(model, anatomy)
        patches.put_on()
        register(patches)
        refuse_copies(patches, anatomy)
        rotating = install(patches, model, anatomy, slots, implementation, observer, exact)
        prove_reached(patches, anatomy)
        check_caches(patches, anatomy, rotating)
        check_lengths(patches, anatomy, slots)

    return Extension(model, patch)
