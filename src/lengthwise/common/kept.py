"""Properties that are computed once, traced by torch.compile too, which refuses the lock of `functools.cached_property`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def kept(compute: Callable[[Any], T]) -> T:
    """A property that is computed at its first use and then read from its object's dictionary `facts`."""
    name = compute.__name__

    def read(owner: Any) -> T:
        facts: dict[str, Any] = owner.facts
        if name not in facts:
            facts[name] = compute(owner)
        value: T = facts[name]
        return value

    return property(read, doc=compute.__doc__)  # type: ignore[return-value]
