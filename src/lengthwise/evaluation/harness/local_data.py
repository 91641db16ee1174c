"""Tasks of the harness on local files. Of LongBench-E it has prompts and scores: only the place of the data is another."""

from __future__ import annotations

from glob import escape
from pathlib import Path
from typing import Any

import lm_eval.tasks

from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.harness import ruler_files
from lengthwise.tasks import longbench_e
from lengthwise.tasks.material.case_files import cases

# A name that the harness knows too is overridden, and its tag `longbench_tasks_e` then means the tasks found here
TASK = """include: {stock}
dataset_path: json
dataset_name: null
dataset_kwargs: {{"data_files": {{"test": {file}}}}}
process_docs: !function lengthwise.evaluation.harness.local_data.with_question
"""


def write_tasks(data: Path, out: Path) -> list[str]:
    """Write a task for each file of LongBench-E and RULER in `data`, for the harness's --include_path; return their names."""
    require(data.is_dir(), f"{data} is not a folder; give the one that holds LongBench-E's or RULER's files")
    longbench = {name: data / f"{name}_e.jsonl" for name in longbench_e.TASKS if (data / f"{name}_e.jsonl").is_file()}
    ruler = ruler_files.files_in(data)
    if not longbench and not ruler:
        known = f"{longbench_e.TASKS[0]}_e.jsonl as in LongBench-E or {ruler_files.EXAMPLE} as in RULER"
        raise BadInput(f"{data} holds no file such as {known}; give the folder that does")
    return [*_write_longbench(longbench, out), *(ruler_files.write_tasks(ruler, out) if ruler else [])]


def _write_longbench(files: dict[str, Path], out: Path) -> list[str]:
    for name, file in files.items():
        longbench_e.check(next(cases(file)))
        stock = Path(lm_eval.tasks.__file__).parent / "longbench" / f"{name}_e.yaml"
        require(stock.is_file(), f"this version of lm-eval has no prompts for {name}_e (no {stock}); install a newer one")
        # The library that reads it takes a path for a pattern
        text = TASK.format(stock=ruler_files.in_yaml(str(stock)), file=ruler_files.in_yaml(escape(str(file.resolve()))))
        write_whole(out / f"{name}_e.yaml", text)
    return [f"longbench_{name}_e" for name in files]


def with_question(documents: Any) -> Any:
    """Rename LongBench's column `input` to `question`, as the harness's copy of it says."""
    return documents if "question" in documents.column_names else documents.rename_column("input", "question")
