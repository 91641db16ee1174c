"""How the numbers of an analysis were obtained, and the command that obtains them again."""

from __future__ import annotations

import shlex

from lengthwise.analysis.records import Analysis

# Settings that `lengthwise analyse` takes as options of the same name
OPTIONS = ("sequences", "seed", "dtype", "train_length")


def facts(analysis: Analysis) -> list[tuple[str, str]]:
    """Name and value, for reading."""
    weights = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in analysis.model.items() if key != "name")
    read = ", ".join(f"{one.length:,} ({one.sequences})" for one in analysis.lengths)
    return [
        ("model", str(analysis.model["name"])),
        ("fingerprint", weights),
        *((key.replace("_", " "), str(value)) for key, value in analysis.settings.items()),
        ("lengths (sequences)", read),
        ("made with", ", ".join(f"{key} {value}" for key, value in analysis.made_with.items())),
    ]


def command(analysis: Analysis) -> str:
    words = ["lengthwise", "analyse", str(analysis.model["name"])]
    words += [word for one in analysis.lengths for word in ("--length", str(one.length))]
    words += [word for key in OPTIONS for word in (f"--{key.replace('_', '-')}", str(analysis.settings[key]))]
    words += [word for text in _texts(analysis) for word in ("--text", text)]
    return shlex.join([*words, "--out", "DIR"])


def _texts(analysis: Analysis) -> list[str]:
    """The files that were read; FILE for a text given in Python. Analyses of earlier versions tell names only."""
    if analysis.files:
        return analysis.files
    said = str(analysis.settings["text"])
    return {"shipped prose": [], "given text": ["FILE"]}.get(said, said.split(", "))
