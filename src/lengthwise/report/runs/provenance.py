"""How the numbers of a group were obtained, and the commands that obtain them again."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from lengthwise.methods.spec import BOTH
from lengthwise.report.formatting import CALIBRATED, SCOPES, listed
from lengthwise.report.runs.group import ReportedTask, RunGroup, alignments_in
from lengthwise.tasks import ruler

# Settings that `lengthwise evaluate` takes as options of the same name
OPTIONS = ("seed", "dtype", "train_length", "batch_tokens")
# What `Task.of` says that samples are made of: a name and a digest
TAKEN = re.compile(r"(.+) \([0-9a-f]{16}\)")


def facts(group: RunGroup) -> list[tuple[str, str]]:
    """How the numbers were obtained: name and value, for reading."""
    fingerprint = group.runs[0].config["model"].items()
    weights = [f"{key.replace('_', ' ')} {value}" for key, value in fingerprint if key not in ("name", "config")]
    named = [("model", group.model), ("fingerprint", ", ".join(weights))]
    named += [(key.replace("_", " "), _value(value)) for key, value in group.settings.items()]
    counts = sorted({cell.n for cell in group.cells})
    named.append(("samples a cell", str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"))
    answered = [record for record in group.records if any(reported.covers(record) for reported in _run_tasks(group))]
    named.append(("time spent on answers", _duration(sum(record.seconds for record in answered))))
    named += [(f"file {name}", str(digest)) for name, digest in group.config_entries("data").items()]
    named += [(f"code of {name}", str(code)) for name, code in group.config_entries("code").items()]
    for name, material in group.config_entries("tasks").items():
        if material:
            in_python = group.config_entries("given").get(material, "") is None
            named.append((f"samples of {name}", f"{material}, given in Python" if in_python else material))
    versions = {", ".join(f"{key} {value}" for key, value in run.config["made_with"].items()): None for run in group.runs}
    named.append(("made with", "; ".join(versions)))
    named.append(("read from", ", ".join(str(run.path) for run in group.runs)))
    return named


def describe(spec: str, group: RunGroup) -> str:
    """A method in words."""
    if spec == "none":
        return "the model as it is"
    if spec == "truncate":
        return f"the model as it is, given only the last {group.train_length:,} tokens and the question"
    parts = [_alignment(document) for method, document in group.alignments if method == spec]
    rule = "; ".join(parts) or "a rule that needs no calibration"
    if group.config_entries("reads").get(spec) == BOTH:
        return (
            f"two readings mixed by Bayes' rule, the last {group.train_length:,} tokens as they are and the whole with {rule}"
        )
    return rule


def _alignment(document: Mapping[str, Any]) -> str:
    lengths = listed([f"{entry['length']:,}" for entry in document["temperatures"]])
    text = document.get("provenance", {}).get("text")
    how = f"{CALIBRATED[document['statistic']]}, {SCOPES[document['scope']]}"
    return f"temperature {how}, at {lengths} tokens" + (f" of {text}" if text else "")


def commands(group: RunGroup) -> list[str]:
    """Commands that make these cells again; tasks that ran alike share one, but those of a file or folder have their own."""
    alike: dict[tuple[str, tuple[str, ...], tuple[str, ...], int], list[str]] = defaultdict(list)
    for reported in _run_tasks(group):
        records = [record for record in group.records if reported.covers(record)]
        for data in sorted({record.data for record in records}):
            source = _source(group, reported.task, data)
            if source is None:
                continue
            asked = [record for record in records if record.data == data]
            methods = tuple(spec for spec in group.methods if any(record.method == spec for record in asked))
            lengths = sorted({record.length for record in asked})
            inputs = [word for n in lengths if not data for word in ("--length", str(n))]
            inputs += ["--data", source] if source else []
            alone = reported.task if source else ""
            alike[alone, methods, tuple(inputs), max(record.index for record in asked) + 1].append(reported.task)
    return [_command(group, tasks, methods, inputs, samples) for (_, methods, inputs, samples), tasks in alike.items()]


def _run_tasks(group: RunGroup) -> list[ReportedTask]:
    """The tasks that were run: without further scores of the same answers (named TASK_score), and without RULER's mean."""
    tasks, asked = {reported.task for reported in group.tasks}, group.config_entries("tasks")

    def is_further(name: str) -> bool:
        return name == ruler.NAME or (name not in asked and any(name.startswith(f"{task}_") for task in tasks))

    return [reported for reported in group.tasks if not is_further(reported.task)]


def _source(group: RunGroup, task: str, data: str) -> str | None:
    """The value of --data for a task; empty for the package's own samples, None for those that only Python can give."""
    # A path, or None for what was given in Python
    given = group.config_entries("given")
    if data:
        return given.get(data) or data
    # None is what the package brings
    material = group.config_entries("tasks").get(task) or ""
    if material in given:
        return given[material]
    # Runs of earlier versions tell its name only
    named = TAKEN.fullmatch(material)
    return named[1] if named else ""


def _command(group: RunGroup, tasks: list[str], methods: tuple[str, ...], inputs: tuple[str, ...], samples: int) -> str:
    words = ["lengthwise", "evaluate", group.model]
    in_python = named_in_python(group)
    words += [word for spec in methods for word in ("--method", f"@{spec}.json" if spec in in_python else spec)]
    words += [word for task in tasks for word in ("--task", task)]
    words += [*inputs, "--samples", str(samples)]
    for key in (key for key in OPTIONS if key in group.settings):
        words += [f"--{key.replace('_', '-')}", str(group.settings[key])]
    words += ["--chat"] if group.settings.get("chat") else []
    return shlex.join([*words, "--out", str(group.runs[0].path)])


def named_in_python(group: RunGroup) -> list[str]:
    """Alignments that were handed over as objects, under a name of their own: no command line can name them."""
    return [spec for spec in group.methods if "@" not in spec and alignments_in(group.documents[spec])]


def _value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
