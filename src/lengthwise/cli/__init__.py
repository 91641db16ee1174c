"""The command line: parse, call a verb, print. One file a group of commands."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import Annotated

import typer

from lengthwise.cli.analysis import analyse, misalignment
from lengthwise.cli.calibration import bake, calibrate
from lengthwise.cli.demo import demo
from lengthwise.cli.evaluation import evaluate, reach, with_ray_address
from lengthwise.cli.harness import PASSED_ON, harness, longbench
from lengthwise.cli.lists import methods, tasks
from lengthwise.cli.options import say
from lengthwise.cli.report import report
from lengthwise.cli.standard_output import printing
from lengthwise.cli.training import train
from lengthwise.errors import BadInput
from lengthwise.version import __version__

app = typer.Typer(help="Let a Transformer work past the length it was trained on.")
for command in (demo, calibrate, evaluate, reach, analyse, misalignment, train, report, bake, longbench, methods, tasks):
    app.command()(command)
app.command(context_settings=PASSED_ON)(harness)

# What newer typer returns for Ctrl-C, where older typer raises
INTERRUPTED = 130


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    sys.exit(printing(lambda: run(sys.argv[1:])))


def run(arguments: list[str]) -> int:
    """The exit status: 0 done, 2 bad input (said in one line), 1 anything else."""
    _quiet_libraries()
    arguments = with_ray_address(arguments) or ["--help"]
    try:
        result = typer.main.get_command(app).main(arguments, prog_name="lengthwise", standalone_mode=False)
    except BadInput as error:
        say(str(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except Exception as error:
        # The command-line parser's own errors; newer typer carries its own click, so their class has no one home
        if not hasattr(error, "format_message"):
            raise
        say(" ".join(error.format_message().split()) + " (lengthwise --help shows what there is)")
        return 2
    if result == INTERRUPTED:
        say("interrupted; nothing half-written was left behind")
        return 1
    return result if isinstance(result, int) else 0


def _quiet_libraries() -> None:
    # They read these when they are first imported, which many commands never do
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    for name in ("TRANSFORMERS_VERBOSITY", "HF_HUB_VERBOSITY"):
        os.environ[name] = "error"
    if "transformers" in sys.modules:
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        for name in ("transformers", "huggingface_hub"):
            logging.getLogger(name).setLevel(logging.ERROR)
    # The first line only: torch's warnings come with a stack of C++ frames
    warnings.showwarning = lambda message, *_, **__: say(f"note: {str(message).partition(chr(10))[0]}")
