"""`lengthwise harness` and `lengthwise longbench`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli.options import Json, print_json

Data = Annotated[
    Path | None, typer.Option(help="Folder with LongBench-E's files (hotpotqa_e.jsonl ...) or RULER's, for their tasks.")
]
# All other options are lm_eval's
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def harness(context: typer.Context, data: Data = None) -> None:
    """Run lm-evaluation-harness with any method: --model_args pretrained=MODEL,method=SPEC, and all options of lm_eval."""
    from lengthwise.evaluation.harness import harness as verb

    raise typer.Exit(verb(context.args, data))


def longbench(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The harness's --output_path, made with --log_samples.")],
    as_json: Json = False,
) -> None:
    """LongBench-E's scores by task and number of words, from what the harness left."""
    from lengthwise.tasks.longbench_e import BUCKETS, TASKS, read_scored, summarise

    summary = summarise(read_scored(folder))
    if as_json:
        print_json(asdict(summary))
        return
    columns = [*BUCKETS, "all"]
    print(f"{'task':<22}" + "".join(f"{name:>8}" for name in columns))
    for task, means in {**summary.tasks, "mean over tasks": summary.overall}.items():
        print(f"{task:<22}" + "".join(f"{means[name]:>8.1f}" if name in means else f"{'-':>8}" for name in columns))
    print(f"\npercent, {len(summary.tasks)} of {len(TASKS)} tasks")
