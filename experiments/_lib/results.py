"""Result files: JSON documents that say what they are, which command made them and with which versions; the settings that a
folder of results was begun with, because numbers of other settings must not be mixed in; and what is missing in a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput
from lengthwise.records.append_only import AppendOnly
from lengthwise.records.locks import claim

SETTINGS = "settings.json"


def write(file: Path, form: str, command: str, content: Mapping[str, Any], device: str = "cpu") -> None:
    """`form` names the layout, such as lengthwise.experiments.code/1; `made_with` of the content wins over this machine's."""
    # Pages are made of result files without torch
    from lengthwise.evaluation.sweep.run_config import made_with

    write_json(file, {"format": form, "command": command, "made_with": made_with(device), **content})


def write_json(file: Path, document: Any) -> None:
    write_whole(file, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def kept_settings(folder: Path, settings: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """Writes FOLDER/settings.json; refuses a call whose settings differ from those that the folder was begun with.

    `facts` are kept beside them (the machine, the models); those of the first call stay, but for `command`.
    """
    file, now, before = folder / SETTINGS, json.loads(json.dumps(settings)), {}
    if file.exists():
        before = json.loads(file.read_text())
        for key, value in now.items():
            if (was := before["settings"].get(key)) != value:
                raise BadInput(f"{folder} was begun with another {key}: {was} then, {value} now; give another --out")
    document = {**facts, **{key: value for key, value in before.items() if key != "command"}, "settings": now}
    write_json(file, document)
    return document


def unfinished(lines: AppendOnly[Any], groups: Iterable[Sequence[Hashable]]) -> Iterator[list[Any]]:
    """The keys of each group that the file lacks, group by group; one that another process works at is passed over."""
    for group in groups:
        digest = hashlib.sha256(repr(group).encode()).hexdigest()[:16]
        with claim(lines.path.with_name(f".claim-{digest}")) as mine:
            lines.refresh()
            missing = [key for key in group if key not in lines.lines]
            if mine and missing:
                yield missing
