"""The exception for input that a user can put right; nearly everything that lengthwise refuses raises it."""

import errno
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

# How torch tells it of a CPU and a GPU, C++ of its own, and the libraries in Rust
OUT_OF_MEMORY = ("DefaultCPUAllocator", "out of memory", "bad_alloc", "(os error 12)")


class BadInput(ValueError):
    """Bad input, in one line: what is wrong, with the value, and what to do. The command line exits with status 2."""


class NoRoom(BadInput):
    """A length too short for a task's question; `reach` stops its search there."""


def require(holds: bool, otherwise: str) -> None:
    """Raise `BadInput` unless `holds`; comparisons with NaN do not."""
    if not holds:
        raise BadInput(otherwise)


def did_you_mean(name: str, allowed: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """`did you mean 'NAME'?` of the allowed name nearest to a misspelt one, or of those with its letters for initials, as
    learning-rate has for lr; `otherwise` where there is none."""
    allowed = list(allowed)
    near = [other for other in allowed if _initials(other) == name.lstrip("-")] if len(name.lstrip("-")) > 1 else []
    near = near or get_close_matches(name, allowed, n=1, cutoff=cutoff)
    return f"did you mean {' or '.join(map(repr, near))}?" if near and near[0] != name else otherwise


def _initials(name: str) -> str:
    return "".join(word[0] for word in name.replace("_", "-").split("-") if word)


def require_one_of(what: str, value: str, allowed: Sequence[str]) -> None:
    """Raise `BadInput` unless `value` is allowed, with the nearest that is."""
    hint = did_you_mean(str(value), allowed)
    require(value in allowed, f"{what} must be one of {', '.join(allowed)}, not {value!r}{'; ' * bool(hint)}{hint}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, whichever library met it; no file, checkpoint or disk is to be blamed for it then."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return not isinstance(error, BadInput) and any(sign in str(error) for sign in OUT_OF_MEMORY)
