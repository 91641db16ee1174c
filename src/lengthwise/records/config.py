"""What must not change within one run directory, and what may grow.

    {"format", "model": {fingerprint}, "settings": {...}, "methods": {spec: alignment or null},
     "reads": {spec: whole, end or both}, "tasks": {name: material or null}, "data": {name: digest}, "made_with": {...}}

The model and the settings must stay; methods, tasks and files of data may be added; a spec, a task or a file name keeps its
content.
`made_with` tells how the run began.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lengthwise.errors import BadInput

FORMAT = "lengthwise.run/1"
Config = dict[str, Any]
# The name is for people: the same model may stand in another directory today
COMPARED = ("family", "layers", "heads", "key_size", "weights")
ANOTHER = "give another --out"
USUAL = "what the package brings"


def check_format(config: Config, path: Path) -> None:
    found = config.get("format")
    if found != FORMAT:
        raise BadInput(f"{path} is not a run directory of this version: its format is {found!r}, not {FORMAT!r}; {ANOTHER}")


def grown(old: Config, new: Config, path: Path) -> Config:
    """The old config with what the new one adds; refused where they contradict each other."""
    check_format(old, path)
    check_same(old, new, path)
    tasks, now_tasks = old.get("tasks", {}), new.get("tasks", {})
    for name, now in now_tasks.items():
        if (was := tasks.get(name, now)) != now:
            raise BadInput(f"{path} holds samples of {name} made of {was or USUAL}, and not of {now or USUAL}; {ANOTHER}")
    return {
        **old,
        "tasks": {**tasks, **now_tasks},
        "methods": _joined(old["methods"], new["methods"], path, "method"),
        "reads": _joined(old.get("reads", {}), new.get("reads", {}), path, "method"),
        "data": _joined(old.get("data", {}), new.get("data", {}), path, "data file"),
    }


def check_same(old: Config, new: Config, path: Path) -> None:
    """Refuse another model, or other settings, than those a directory was begun with."""
    for key in COMPARED:
        was, now = old["model"].get(key), new["model"].get(key)
        if was != now:
            raise BadInput(f"{path} holds records of another model: its {key} is {was}, this model's is {now}; {ANOTHER}")
    for key, now in new["settings"].items():
        was = old["settings"].get(key)
        if was != now:
            raise BadInput(f"{path} was begun with another {key}: {was} then, {now} now; {ANOTHER}, or {key} {was}")


def _joined(old: dict[str, Any], new: dict[str, Any], path: Path, what: str) -> dict[str, Any]:
    for name, now in new.items():
        if name in old and old[name] != now:
            where = _difference(old[name], now)
            raise BadInput(
                f"the {what} {name!r} has changed since {path} was begun{where}; {ANOTHER}, or give the new one a new name"
            )
    return {**old, **new}


def _difference(old: Any, new: Any) -> str:
    """The first key that differs, with both values where they are short."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return ""
    for key in new:
        was, now = old.get(key), new[key]
        if was != now:
            return f": its {key} was {_short(was)} and is {_short(now)}"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
