"""Read the rows of a data set of the hub where a task could read a file.

`hub:NAME[:CONFIGURATION][@SPLIT]` names it; without a split it is the test split.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lengthwise.errors import BadInput

PREFIX = "hub:"


def is_hub(path: Path) -> bool:
    return str(path).startswith(PREFIX)


def rows(path: Path) -> list[dict[str, Any]]:
    named = re.fullmatch(r"hub:(?P<name>[^:@]+)(:(?P<configuration>[^:@]+))?(@(?P<split>.+))?", str(path))
    if named is None:
        raise BadInput(f"{path} names no data set; write hub:NAME, hub:NAME@SPLIT or hub:NAME:CONFIGURATION@SPLIT")
    try:
        from datasets import load_dataset
    except ModuleNotFoundError:
        raise BadInput(f"{path} needs the package datasets, which is not installed; pip install 'lengthwise[train]'") from None
    try:
        return [dict(row) for row in load_dataset(named["name"], named["configuration"], split=named["split"] or "test")]
    # What it raises for no network, no such data set and no such split
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None
