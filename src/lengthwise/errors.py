"""The one exception for input that a user can put right, and the one kind of it that a search goes on from."""


class BadInput(ValueError):
    """One line: what is wrong, with the value, and what to do. The command line turns it into exit status 2."""


class NoRoom(BadInput):
    """A question is longer than the prompt it should stand in; a larger length has room for it."""


def require(holds: bool, otherwise: str) -> None:
    """Refuse input for which `holds` is false (comparisons with NaN are)."""
    if not holds:
        raise BadInput(otherwise)
