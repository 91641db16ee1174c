"""How an experiment ends on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable

from lengthwise.errors import BadInput


def exit_status(work: Callable[[], object]) -> int:
    """0 done, 2 bad input with one line that says what is wrong."""
    try:
        work()
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
