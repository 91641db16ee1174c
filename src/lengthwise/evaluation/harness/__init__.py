"""lm-evaluation-harness with every method: `lengthwise` as a model there, so that each of its tasks can be run.

    lengthwise harness --model_args pretrained=DIR,method=yarn:factor=8 --tasks longbench_tasks_e --data LongBench/data

The harness knows no plug-ins: a model is registered by importing it, so its own command line is called from here, with all its
options.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from lengthwise.errors import BadInput, require

MODEL = "lengthwise"
COMMANDS = ("run", "ls", "validate")
# Options with which a run names its task, has it from a file of settings, or only asks for help
TASK_OPTIONS = ("--ta", "-t", "--config", "-C", "--he", "-h")
FOLDER_OPTION = "--i"  # --include_path, also shortened or with a value behind =
LISTED = "lengthwise harness ls tasks lists them"
# How the harness's messages begin when it refuses tasks
TASK_REFUSALS = ("Need to specify task", "No tasks specified", "Tasks not found")


def harness(arguments: Sequence[str], data: Path | None = None) -> int:
    """Run lm_eval's command line and return its exit status; `data` is a folder of LongBench-E's or RULER's files."""
    installed = importlib.util.find_spec("lm_eval") is not None
    require(installed, "the harness needs the package lm-eval; pip install 'lengthwise[lm-eval]'")
    given = _with_model(arguments)
    # The harness would say so itself, a minute later
    require(given[0] != "run" or _names_tasks(given), f"no task is named; give --tasks NAME ({LISTED})")
    importlib.import_module("lengthwise.evaluation.harness.model")
    from lengthwise.evaluation.harness.local_data import write_tasks

    if data is None:
        return _lm_eval(given)
    included = any(argument.startswith(FOLDER_OPTION) for argument in given)
    require(not included, "--data brings its own --include_path; give one of them, not both")
    with tempfile.TemporaryDirectory(prefix="lengthwise.") as folder:
        write_tasks(data, Path(folder))
        return _lm_eval([*given, "--include_path", folder])


def _names_tasks(arguments: Sequence[str]) -> bool:
    """Whether one of `TASK_OPTIONS` is given, and not with an empty name, which the harness takes for the folder it runs in."""
    for option, following in pairwise([*arguments, ""]):
        if option.startswith(TASK_OPTIONS):
            _, given, value = option.partition("=")
            return not option.startswith(TASK_OPTIONS[:2]) or bool((value if given else following).strip(" ,"))
    return False


def _with_model(arguments: Sequence[str]) -> list[str]:
    """Add `--model lengthwise`, unless another model or a file of settings is given, or nothing is to be run."""
    command, *rest = arguments if arguments and arguments[0] in COMMANDS else ("run", *arguments)
    names = {argument.partition("=")[0] for argument in rest}
    if command == "run" and names.isdisjoint(("--model", "-M", "--config", "-C")):
        rest = ["--model", MODEL, *rest]
    return [command, *rest]


def _lm_eval(arguments: list[str]) -> int:
    from lm_eval.__main__ import cli_evaluate

    from lengthwise.models.load import reason_of

    arguments_before, sys.argv = sys.argv, ["lm_eval", *arguments]
    try:
        with _table_headers():
            cli_evaluate()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except ConnectionError as error:
        problem = f"the data of a task is out of reach ({reason_of(error)})"
        raise BadInput(f"{problem}; LongBench-E and RULER run from local files with --data") from error
    except BadInput:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(TASK_REFUSALS):
            raise BadInput(f"the harness has no such task: {reason_of(error)} ({LISTED})") from error
        if not _reading_tasks(error):
            raise
        raise BadInput(f"the harness cannot read a task of that name or folder: {reason_of(error)} ({LISTED})") from error
    finally:
        sys.argv = arguments_before
    return 0


def _reading_tasks(error: Exception) -> bool:
    """Whether the harness raised it while reading tasks: a user may name files and folders of any content."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(name == "lm_eval.tasks.manager" or name.startswith("lm_eval.tasks._") for name in modules)


@contextmanager
def _table_headers() -> Iterator[None]:
    """Give pytablewriter's tables the attribute `headers`, which old versions call `header_list`.

    pip installs one of them beside python-dateutil 4, which the newer ones do not allow.
    """
    from pytablewriter import MarkdownTableWriter

    old = not hasattr(MarkdownTableWriter(), "headers")
    if old:
        MarkdownTableWriter.headers = property(fset=lambda table, names: setattr(table, "header_list", names))
    try:
        yield
    finally:
        if old:
            del MarkdownTableWriter.headers
