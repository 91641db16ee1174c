"""Packages that only some targets need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lengthwise.errors import BadInput


def needed(package: str, extra: str, what: str) -> Any:
    """Import a package of an extra, or say in one line how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise BadInput(f"{what} needs the package {package}; pip install 'lengthwise[{extra}]'") from error
