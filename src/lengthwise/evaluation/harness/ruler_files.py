"""RULER's tasks of the harness on the files that RULER's own scripts wrote: LENGTH/data/TASK/validation.jsonl.

Tasks, metrics (the lengths) and the settings of answers are those of the harness's own tasks, which fetch essays and questions
when they run. Scores are RULER's: an answer to `qa` needs one of the references, where the harness takes their share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.tasks import TASKS, ruler
from lengthwise.tasks.material.case_files import Case, cases
from lengthwise.tasks.ruler.references import joined, official

EXAMPLE = "4096/data/niah_single_1/validation.jsonl"
# The harness's names of tasks that RULER calls otherwise
HARNESS_NAMES = {"vt": "ruler_vt", "cwe": "ruler_cwe", "fwe": "ruler_fwe", "qa_1": "ruler_qa_squad", "qa_2": "ruler_qa_hotpot"}
HERE = "!function lengthwise.evaluation.harness.ruler_files"
TASK = """task: {name}
custom_dataset: {here}.documents
dataset_kwargs: {{"kind": {kind}, "files": {files}}}
output_type: generate_until
test_split: test
doc_to_text: "{{{{input}}}}"
doc_to_target: "{{{{outputs}}}}"
gen_prefix: "{{{{gen_prefix}}}}"
target_delimiter: " "
process_results: {here}.scored
metric_list: {metrics}
generation_kwargs: {{"do_sample": false, "temperature": 0.0, "max_gen_toks": {tokens}, "until": []}}
metadata: {{"version": "1.0"}}
"""
Files = dict[str, dict[int, Path]]  # a file for each length of each task


def files_in(data: Path) -> Files:
    """The files of RULER in a folder, at any depth, by RULER's name of the task and the length they were made for."""
    kinds = [name.removeprefix(f"{ruler.NAME}_") for name in ruler.NAMES]
    files: Files = {}
    for file in sorted(data.rglob("*.jsonl")):
        kind = file.parent.name
        if kind in kinds:
            length = _length(next(cases(file)), file)
            of_kind = files.setdefault(kind, {})
            require(length not in of_kind, f"{data} holds two files of {kind} at {length} tokens; give the folder of one")
            of_kind[length] = file
    return {kind: dict(sorted(files[kind].items())) for kind in kinds if kind in files}


def write_tasks(files: Files, out: Path) -> list[str]:
    """Write the harness's task for each of RULER's, and its group `ruler` of those; return their names."""
    names = {kind: HARNESS_NAMES.get(kind, kind) for kind in files}
    for kind, name in names.items():
        metrics = [{"metric": str(length), "aggregation": "mean", "higher_is_better": True} for length in files[kind]]
        paths = {str(length): str(file.resolve()) for length, file in files[kind].items()}
        text = TASK.format(
            name=name,
            here=HERE,
            kind=json.dumps(kind),
            files=in_yaml(paths),
            metrics=json.dumps(metrics),
            tokens=_task(kind).answer_tokens,
        )
        write_whole(out / f"{name}.yaml", text)
    # A mean over fewer than its 13 tasks is no score of RULER
    whole = [length for length in min(files.values(), key=len) if len(files) == len(ruler.NAMES)]
    means = [{"metric": str(n), "weight_by_size": False} for n in whole if all(n in lengths for lengths in files.values())]
    group = {"group": ruler.NAME, "task": list(names.values()), "metadata": {"version": 1}}
    write_whole(out / "ruler.yaml", json.dumps(group | ({"aggregate_metric_list": means} if means else {})))
    return list(names.values())


def in_yaml(value: Any) -> str:
    """A value as JSON that YAML reads alike; not escaped, because YAML would not join the two halves of an emoji."""
    return json.dumps(value, ensure_ascii=False)


def documents(kind: str, files: dict[str, str], max_seq_lengths: Iterable[int] | None = None, **_: Any) -> dict[str, Any]:
    """The prompts of a task for the harness, one of each length in turn, so that --limit leaves none out.

    `max_seq_lengths` is what the harness's own tasks take from --metadata: the lengths to ask.
    """
    from datasets import Dataset

    asked = list(files) if max_seq_lengths is None else [str(length) for length in max_seq_lengths]
    missing = [length for length in asked if length not in files]
    require(not missing, f"no file of {kind} has prompts of {', '.join(missing)} tokens; there are {', '.join(files)}")
    rows = [_row(kind, int(length), index, case) for length in asked for index, case in enumerate(cases(Path(files[length])))]
    return {"test": Dataset.from_list(sorted(rows, key=lambda row: row["index"]))}


def scored(document: dict[str, Any], answers: list[str]) -> dict[str, float]:
    """RULER's score of an answer, under the name of its length."""
    return {str(document["max_length"]): _task(document["kind"]).score(answers[0], joined(document["outputs"]))}


def _row(kind: str, length: int, index: int, case: Case) -> dict[str, Any]:
    prompt, prefix, references = official(case)
    return {
        "kind": kind,
        "index": index,
        "input": prompt,
        "gen_prefix": prefix,
        "outputs": references,
        "max_length": length,
    }


def _task(kind: str) -> Any:
    return TASKS[f"{ruler.NAME}_{kind}"]


def _length(first: Case, file: Path) -> int:
    """The length in tokens that a file was made for: in its lines if the harness made it, in a folder's name if RULER did."""
    official(first)
    if "max_length" in first.fields:
        return int(first.get("max_length", int, "the tokens of prompt and answer together"))
    named = [part for part in file.resolve().parts[-4:-2] if part.isdecimal()]
    if not named:
        problem = f"{file} does not tell the length it was made for; let it lie in a folder of that name ({EXAMPLE})"
        raise BadInput(f"{problem}, or give each line 'max_length'")
    return int(named[-1])
