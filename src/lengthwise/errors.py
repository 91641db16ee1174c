"""The one exception for input that a user can put right."""


class BadInput(ValueError):
    """One line: what is wrong, with the value, and what to do. The command line turns it into exit status 2."""
