"""Settings that a folder of results was begun with: numbers of other settings must not be mixed in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput

SETTINGS = "settings.json"


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
    write_whole(file, json.dumps(document, indent=1) + "\n")
    return document
