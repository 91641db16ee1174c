"""The command line: parse, call a verb, print. One file a group of commands."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from typing import Annotated, Any

import typer

from lengthwise.cli.analysis import analyse, misalignment
from lengthwise.cli.calibration import bake, calibrate, export
from lengthwise.cli.demo import demo
from lengthwise.cli.evaluation import evaluate, reach, with_ray_address
from lengthwise.cli.harness import PASSED_ON, harness, longbench
from lengthwise.cli.lists import methods, tasks
from lengthwise.cli.options import say
from lengthwise.cli.recommendation import recommend
from lengthwise.cli.report import report
from lengthwise.cli.standard_output import CannotPrint, printing
from lengthwise.cli.stopping import termination_as_interrupt
from lengthwise.cli.training import train
from lengthwise.common.files import system_reason
from lengthwise.common.plugins import raised_in
from lengthwise.errors import BadInput, did_you_mean, is_out_of_memory
from lengthwise.version import __version__

app = typer.Typer(help="Let a Transformer work past the length it was trained on.")
VERBS = (
    demo,
    recommend,
    calibrate,
    evaluate,
    reach,
    analyse,
    misalignment,
    train,
    report,
    bake,
    export,
    longbench,
    methods,
    tasks,
)
for command in VERBS:
    app.command()(command)
app.command(context_settings=PASSED_ON)(harness)

# What newer typer returns for Ctrl-C, where older typer raises
INTERRUPTED = 130
# What Python raises for input that is more than it holds
TOO_MUCH = {
    UnicodeError: "a name or a text is not UTF-8",
    OverflowError: "a number is too large",
    RecursionError: "lists or objects are too deep",
}
NO_MEMORY = "there is not enough memory; give smaller batches, shorter lengths, a smaller model or another --device"


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    sys.exit(printing(lambda: run(sys.argv[1:])))


def run(arguments: list[str]) -> int:
    """The exit status: 0 done, 2 bad input (said in one line), 130 or 143 stopped by a signal, 1 anything else."""
    _quiet_libraries()
    # A GGUF file's is hundreds of lines in a log; the harness's own are the harness's. tqdm reads it when it is imported
    if arguments[:1] != ["harness"] and not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    arguments = with_ray_address(arguments) or ["--help"]
    with termination_as_interrupt() as received:
        try:
            _check_text(arguments)
            result = typer.main.get_command(app).main(arguments, prog_name="lengthwise", standalone_mode=False)
        except (KeyboardInterrupt, typer.Abort):
            result = INTERRUPTED
        except Exception as error:
            # An import in C may have lost the interrupt, and failed for it
            if not received:
                if (line := _bad_input(error)) is None:
                    raise
                say(line)
                return 2
            result = INTERRUPTED
    if result == INTERRUPTED:
        stopped = "terminated" if received[:1] == [signal.SIGTERM] else "interrupted"
        say(f"{stopped}; nothing half-written was left behind, give the same command again")
        return 128 + (received[0] if received else signal.SIGINT)
    return result if isinstance(result, int) else 0


def _check_text(arguments: list[str]) -> None:
    """Refuse what is not text: names of models, methods and files are written to records, which are UTF-8."""
    try:
        for argument in arguments:
            argument.encode()
    except UnicodeEncodeError:
        raise BadInput(f"the argument {argument} is not UTF-8; give what it names another name") from None


def _bad_input(error: Exception) -> str | None:
    """The one line to print for an error that a user can put right; None for a mistake of ours, which keeps its traceback."""
    if isinstance(error, BadInput):
        return str(error)
    # The command-line parser's own errors; newer typer carries its own click, so their class has no one home
    if hasattr(error, "format_message"):
        return _wrong_usage(error)
    if is_out_of_memory(error):
        return NO_MEMORY
    # A method or a task of the user's own, which is theirs to put right
    if (line := raised_in(error)) is not None:
        return line
    # Standard output has a line and an exit status of its own
    if not isinstance(error, CannotPrint) and (reason := system_reason(error)) is not None:
        name = getattr(error, "filename", None)
        return reason if name is None else f"cannot use {name}: {reason}; give another place"
    words = next((words for kind, words in TOO_MUCH.items() if isinstance(error, kind)), None)
    return words and f"{words}: {' '.join(str(error).split())}".rstrip(": ")


def _wrong_usage(error: Any) -> str:
    """The parser's message, with a suggestion for a misspelt option."""
    name, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name is None or context is None or "No such option" not in str(error.message):
        command = "lengthwise" if context is None else context.command_path
        return f"{' '.join(error.format_message().split())} ({command} --help shows what there is)"
    known = [option for parameter in context.command.params for option in parameter.opts if option.startswith("--")]
    return f"No such option: {name}; {did_you_mean(name, known, f'lengthwise {context.info_name} --help shows what there is')}"


def _thread_failed(told: threading.ExceptHookArgs) -> None:
    """Print one line where the system refused a thread its work, as TensorBoard's on a full disk; else the traceback."""
    reason = None if told.exc_value is None else system_reason(told.exc_value)
    if reason is None:
        threading.__excepthook__(told)
    else:
        say(f"note: {reason}")


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
    threading.excepthook = _thread_failed
    # The first line only: torch's warnings come with a stack of C++ frames
    warnings.showwarning = lambda message, *_, **__: say(f"note: {str(message).partition(chr(10))[0]}")
