"""The config of a run directory: what must not change within it, and what may grow.

The model and the settings must stay; methods, tasks and files of data may be added; a spec, a task or a file name keeps its
content.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Gt, MinLen
from typing_extensions import TypedDict

from lengthwise.common.formats import MustBe, checked, shown
from lengthwise.errors import BadInput

FORMAT = "lengthwise.run/1"
Config = dict[str, Any]
# The name is for people: the same model may stand in another directory today
COMPARED = ("family", "layers", "heads", "key_size", "weights")
ANOTHER = "give another --out"
USUAL = "what the package brings"
Length = Annotated[int, Gt(1)]


class StoredTemperature(TypedDict):
    """An entry of an alignment, as far as a report shows it."""

    __pydantic_config__ = {"strict": True, "allow_inf_nan": False}  # type: ignore[misc]

    length: Length
    tau: float | list[float] | list[list[float]]


class StoredAlignment(TypedDict):
    """An alignment, as far as a report shows it."""

    __pydantic_config__ = {"strict": True}  # type: ignore[misc]

    statistic: Literal["pmax", "entropy", "answers"]
    scope: Literal["model", "layer", "head"]
    train_length: Length
    temperatures: Annotated[list[StoredTemperature], MinLen(1)]
    provenance: NotRequired[dict[str, Any]]


def _is_document(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_document, value))
    if isinstance(value, dict) and "temperatures" in value:
        try:
            checked(StoredAlignment, value)
        except ValueError:
            return False
    return isinstance(value, dict | None)


# What a file of a method holds; a list where a spec names several
Document = Annotated[
    dict[str, Any] | list[Any] | None, MustBe("an alignment, another object, a list of such or null", _is_document)
]


def _is_model(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("config", {}), dict)


# What tells a model from others; its name is the one that the run began with
Fingerprint = Annotated[dict[str, Any], MustBe("an object with a name", _is_model)]


class RunConfig(TypedDict):
    """config.json; a key that is not required is missing from runs of earlier versions."""

    format: str
    model: Fingerprint
    settings: dict[str, Any]
    methods: dict[str, Document]  # by spec
    specs: NotRequired[dict[str, str]]  # name of the caller's own -> spec
    reads: NotRequired[dict[str, str]]  # spec -> whole, end or both: what of a prompt the method reads
    tasks: NotRequired[dict[str, str | None]]  # name -> other material than the package's
    samples: NotRequired[int]  # version of the samples that were made, where some were; 1 if it is missing
    data: NotRequired[dict[str, str]]  # name of a file -> digest
    given: NotRequired[dict[str, str | None]]  # material or name of a file -> path, or null for Python
    code: NotRequired[dict[str, str]]  # task of the user's own -> its file or package, and a digest
    made_with: NotRequired[Any]  # versions of the packages that the run began with


def check_whole(config: Config, path: Path) -> None:
    """Refuse values that no evaluation writes."""
    try:
        checked(RunConfig, config)
    except ValueError as error:
        damaged = f"{path / 'config.json'} is damaged: {error}"
        raise BadInput(f"{damaged}; put it right, or evaluate into another directory") from None


def merged_config(old: Config, new: Config, path: Path) -> Config:
    """The old config with what the new one adds; refused where they contradict each other."""
    check_same(old, new, path)
    tasks, now_tasks = old.get("tasks", {}), new.get("tasks", {})
    made = {"samples": new["samples"]} if "samples" in new else {}
    if made and old.get("tasks", made) and old.get("samples", 1) != new["samples"]:
        raise BadInput(f"{path} holds samples that an earlier version made, and this one makes others; {ANOTHER}")
    for name, now in now_tasks.items():
        if (was := tasks.get(name, now)) != now:
            raise BadInput(f"{path} holds samples of {name} made of {was or USUAL}, and not of {now or USUAL}; {ANOTHER}")
    code = _merged(old.get("code", {}), new.get("code", {}), path, "task")
    specs = _merged(old.get("specs", {}), new.get("specs", {}), path, "method")
    return {
        **old,
        "tasks": {**tasks, **now_tasks},
        **made,
        **({"code": code} if code else {}),
        **({"specs": specs} if specs else {}),
        "methods": _merged(old["methods"], new["methods"], path, "method"),
        "reads": _merged(old.get("reads", {}), new.get("reads", {}), path, "method"),
        "data": _merged(old.get("data", {}), new.get("data", {}), path, "data file"),
        # The same content may stand elsewhere today
        "given": {**new.get("given", {}), **old.get("given", {})},
    }


def check_same(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
    """Refuse another model, or other settings, than those a directory was begun with."""
    if other := another_model(old["model"], new["model"]):
        raise BadInput(f"{path} was begun with another model: {other}; {ANOTHER}")
    # Keys come and go with the versions of transformers, and earlier versions of a run have none
    old_config = old["model"].get("config", {})
    for key, now in new["model"].get("config", {}).items():
        if (was := old_config.get(key, now)) != now:
            raise BadInput(f"{path} was begun with another config of the model: its {key} was {was} and is {now}; {ANOTHER}")
    # A setting that stands there only where it is on
    for key in (*new["settings"], "chat"):
        was, now = (config["settings"].get(key) for config in (old, new))
        if was != now:
            raise BadInput(f"{path} was begun with another {key}: {was} then, {now} now; {ANOTHER}, or {key} {was}")


def another_model(was: dict[str, Any], now: dict[str, Any]) -> str:
    """In words, the first difference between two fingerprints; empty where they are of the same model."""
    key = next((key for key in COMPARED if was.get(key) != now.get(key)), None)
    return "" if key is None else f"its {key} is {was.get(key)}, this model's is {now.get(key)}"


def _merged(old: dict[str, Any], new: dict[str, Any], path: Path, what: str) -> dict[str, Any]:
    for name, now in new.items():
        if name in old and old[name] != now:
            changed = f"the {what} {name!r} has changed since {path} was begun{_difference(old[name], now)}"
            raise BadInput(f"{changed}; {ANOTHER}, or give the new one a new name")
    return {**old, **new}


def _difference(old: Any, new: Any) -> str:
    """The first key that differs, with both values where they are short."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, now in new.items():
            if (was := old.get(key)) != now:
                return f": its {key} was {shown(was)} and is {shown(now)}"
    return ""
