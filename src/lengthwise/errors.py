"""The exception for input that a user can put right; nearly everything that lengthwise refuses raises it."""


class BadInput(ValueError):
    """Bad input, in one line: what is wrong, with the value, and what to do. The command line exits with status 2."""


class NoRoom(BadInput):
    """A length too short for a task's question; `reach` stops its search there."""


def require(holds: bool, otherwise: str) -> None:
    """Raise `BadInput` unless `holds`; comparisons with NaN do not."""
    if not holds:
        raise BadInput(otherwise)
