"""All that only a new interpreter can show, in a single one, because each start of torch costs ten seconds.

    python -m tests.helpers.new_interpreter SCRIPT MODEL ALIGNMENT FOLDER

Runs commands that need no torch, then the console script: a calibration, whose result and progress go to standard output and
standard error, and a refusal. Leaves FOLDER/seen.json: what was imported when, and what lengthwise changed in torch and
transformers. Run by tests/cli/test_new_interpreter.py.
"""

from __future__ import annotations

import json
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import lengthwise as lw
import lengthwise.report
from lengthwise import cli


def loaded(*packages: str) -> list[str]:
    return [package for package in packages if package in sys.modules]


def global_state() -> tuple[Any, ...]:
    """What a package that patches on import would patch."""
    import torch
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    own = torch.nn.functional.scaled_dot_product_attention
    return dict(ALL_MASK_ATTENTION_FUNCTIONS), dict(ALL_ATTENTION_FUNCTIONS), own


def console(*arguments: str) -> Any:
    """The exit status of the console script."""
    sys.argv = list(arguments)
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return end.code


def main() -> None:
    script, model, alignment, folder = sys.argv[1:]
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        for arguments in (["--help"], ["--version"], ["evaluate", "--help"], ["calibrate"], ["methods"], ["tasks"]):
            cli.run(arguments)
    seen: dict[str, Any] = {"imported without a model": loaded("torch", "transformers", "numpy")}
    before: list[Any] = []
    quiet = cli._quiet_libraries

    def quiet_then_look() -> None:
        """Transformers is imported after it was told to be quiet, and before lengthwise can change it."""
        quiet()
        before.append(global_state())

    cli._quiet_libraries = quiet_then_look
    seen["status"] = console(script, "calibrate", model, "--length", "64", "--out", f"{folder}/a.json", "--json")
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = console(script, "bake", model, alignment, "--length", "64", "--out", f"{folder}/baked")
    seen["refusal"] = [status, out.getvalue(), err.getvalue()]
    untrained = [name for name in lw.__all__ if name not in ("MisalignmentTrainer", "Trained", "train")]
    seen["callable"] = {name: callable(getattr(lw, name)) for name in untrained}
    seen["imported without training"] = loaded("transformers.trainer", "peft", "datasets")
    seen["callable"] |= {name: callable(getattr(lw, name)) for name in lw.__all__}
    for family in ("gau_alpha", "small_decoder"):
        import_module(f"lengthwise.models.{family}")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    seen["families"] = [family for family in ("gau_alpha", "small_decoder") if family in CONFIG_MAPPING]
    seen["bars in a log"] = not import_module("tqdm.auto").tqdm([]).disable
    seen["unchanged"] = all(state == global_state() for state in before)
    seen["looks"] = len(before)
    seen["calibrate is the function"] = lw.calibrate is sys.modules["lengthwise.calibration.calibrate"].calibrate
    Path(folder, "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
