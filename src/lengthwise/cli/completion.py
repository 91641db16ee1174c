"""What the shell offers after TAB: models, methods and tasks. `lengthwise --install-completion` sets it up."""

from __future__ import annotations

from pathlib import Path

EMBEDDED = "embedded"


def models(incomplete: str) -> list[str]:
    """`embedded`, and directories and GGUF files, which a hub name may stand beside."""
    folder = Path(incomplete if incomplete.endswith("/") else Path(incomplete).parent)
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    paths = [f"{entry}/" if entry.is_dir() else str(entry) for entry in entries if entry.is_dir() or entry.suffix == ".gguf"]
    return [name for name in (EMBEDDED, *paths) if name.startswith(incomplete)]


def methods(incomplete: str) -> list[str]:
    """Names of methods, also behind the + of a sum."""
    from lengthwise.methods.registry import METHODS

    before, plus, last = incomplete.rpartition("+")
    return [f"{before}{plus}{name}" for name in ("none", "truncate", "hedge", *METHODS) if name.startswith(last)]


def tasks(incomplete: str) -> list[str]:
    """Names of tasks."""
    from lengthwise.tasks import TASKS

    return [name for name in TASKS if name.startswith(incomplete)]
