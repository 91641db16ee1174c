"""`lengthwise methods` and `lengthwise tasks`."""

from __future__ import annotations

import sys

from lengthwise.cli.options import Json, print_json
from lengthwise.common import plugins


def methods(as_json: Json = False) -> None:
    """List the methods, one line each."""
    from lengthwise.methods.registry import METHODS, source_of

    _print_list("method", {name: source_of(name).summary for name in METHODS}, as_json)


def tasks(as_json: Json = False) -> None:
    """List the tasks, one line each."""
    from lengthwise.tasks import TASKS

    modules = {name: sys.modules[task.samples.__module__] for name, task in TASKS.items()}
    lines = {name: task.about or str(modules[name].__doc__).split("\n", 1)[0] for name, task in TASKS.items()}
    _print_list("task", lines, as_json)


def _print_list(kind: str, lines: dict[str, str], as_json: bool) -> None:
    for entry in plugins.announced(kind):
        taken = ", which cannot be used: another package has this name" if entry.name in lines else ""
        lines[entry.name] = f"{entry.value} of {plugins.package_of(entry)}{taken}"
    if as_json:
        print_json([{"name": name, "what": line} for name, line in lines.items()])
        return
    width = max(map(len, lines))
    for name, line in lines.items():
        print(f"{name:<{width}}  {line}")
