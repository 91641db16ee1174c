"""What the shell offers after TAB: models, methods and tasks. `lengthwise --install-completion` sets it up."""

from __future__ import annotations

from pathlib import Path

from lengthwise.common.plugins import announced

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
    names = ("none", "truncate", "hedge", *METHODS, *(entry.name for entry in announced("method")))
    return [f"{before}{plus}{name}" for name in names if name.startswith(last)]


def tasks(incomplete: str) -> list[str]:
    """Names of tasks."""
    from lengthwise.tasks import GROUPS, TASKS

    names = (*GROUPS, *TASKS, *(entry.name for entry in announced("task")))
    return [name for name in names if name.startswith(incomplete)]
