"""`lengthwise methods` and `lengthwise tasks`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from lengthwise.cli import completion
from lengthwise.cli.evaluation import columns
from lengthwise.cli.options import Json, print_json
from lengthwise.common import plugins
from lengthwise.errors import BadInput

Check = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC", help="Try a method on small models instead: FILE.py:CLASS, ...", autocompletion=completion.methods
    ),
]


def methods(check: Check = None, as_json: Json = False) -> None:
    """List the methods, one line each; or try one of them, or of your own."""
    from lengthwise.methods.registry import METHODS, source_of

    if check is not None:
        _check(check, as_json)
        return
    _print_list("method", {name: source_of(name).summary for name in METHODS}, as_json)


def tasks(as_json: Json = False) -> None:
    """List the tasks, one line each."""
    from lengthwise.tasks import GROUPS, TASKS

    modules = {name: sys.modules[task.samples.__module__] for name, task in TASKS.items()}
    lines = {name: task.about or str(modules[name].__doc__).split("\n", 1)[0] for name, task in TASKS.items()}
    groups = {name: f"All of {names[0]} ... {names[-1]}, and their mean." for name, names in GROUPS.items()}
    _print_list("task", {**lines, **groups}, as_json)


def _check(spec: str, as_json: bool) -> None:
    """Print what a method does on small models; exit status 1 where something fails."""
    from lengthwise.methods.spec import check_spec
    from lengthwise.models.check import FINITE, REFUSED, check_method, failures

    check_spec(spec)
    outcomes = check_method(spec)
    tried = [outcome for outcome in outcomes if outcome.check == FINITE]
    # What no model takes, for one and the same reason, lies in the spec: a factor below 1, a function that raises
    if all(outcome.verdict == REFUSED for outcome in tried) and len({outcome.reason for outcome in tried}) == 1:
        raise BadInput(tried[0].reason)
    failed = failures(outcomes)
    if as_json:
        print_json({"method": spec, "passes": not failed, "outcomes": [asdict(outcome) for outcome in outcomes]})
    else:
        models = dict.fromkeys(outcome.model for outcome in outcomes)
        verdicts = {(outcome.check, outcome.model): outcome.verdict for outcome in outcomes}
        checks = dict.fromkeys(outcome.check for outcome in outcomes)
        print(columns([["", *models], *([check, *(verdicts[check, model] for model in models)] for check in checks)]))
        # A model that refuses a method does so in every check
        reasons = [f"{o.model}, {o.check}: {o.reason}" for o in outcomes if o.verdict == "FAIL"]
        reasons += dict.fromkeys(f"{o.model} refused: {o.reason}" for o in outcomes if o.verdict == "refused")
        print("\n".join(["", *reasons, f"{spec} {'fails' if failed else 'passes'}"]))
    if failed:
        raise typer.Exit(1)


def _print_list(kind: str, lines: dict[str, str], as_json: bool) -> None:
    for entry in plugins.announced(kind):
        taken = ", which cannot be used: another package has this name" if entry.name in lines else ""
        lines[entry.name] = f"{entry.value} of {plugins.package_of(entry)}{taken}"
    if as_json:
        print_json([{"name": name, "what": line} for name, line in lines.items()])
    else:
        print(columns([[name, line] for name, line in lines.items()]))
