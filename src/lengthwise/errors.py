"""The one exception for input that a user can put right."""


class BadInput(ValueError):
    """One line: what is wrong, with the value, and what to do. The command line turns it into exit status 2."""


def require(holds: bool, otherwise: str) -> None:
    """Refuse input for which `holds` is false (comparisons with NaN are)."""
    if not holds:
        raise BadInput(otherwise)
