"""Result files: JSON documents that say what they are, which command made them and with which versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput


def write(file: Path, form: str, command: str, content: Mapping[str, Any], device: str = "cpu") -> None:
    """`form` names the layout, such as lengthwise.experiments.code/1; `made_with` of the content wins over this machine's."""
    # Pages are made of result files without torch
    from lengthwise.evaluation.sweep.run_config import made_with

    document = {"format": form, "command": command, "made_with": made_with(device), **content}
    write_whole(file, json.dumps(document, indent=1) + "\n")


def read(file: Path, form: str | None = None) -> dict[str, Any]:
    """The document; refused where it is of another layout than `form`."""
    try:
        document = dict(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"cannot read the results in {file}: {error}; measure them again, or restore the file") from None
    if form is not None and document.get("format") != form:
        raise BadInput(f"{file} is of format {document.get('format')!r}, not {form!r}")
    return document
