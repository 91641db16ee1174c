"""LongBench-E (Bai et al. 2023): 13 tasks whose inputs are even over three lengths, counted in words.

Prompts and scores are those that lm-evaluation-harness carries (`lengthwise harness --tasks longbench_tasks_e`); here they are
put together. The benchmark defines no single number. Ours is the mean over tasks of the mean over a task's samples, in percent:
every task counts once. The same within each length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from lengthwise.common.formats import read_json
from lengthwise.errors import BadInput, require
from lengthwise.tasks.material.case_files import Case, cases

TASKS = (
    "qasper multifieldqa_en hotpotqa 2wikimqa gov_report multi_news trec triviaqa samsum passage_count passage_retrieval_en "
    "lcc repobench-p"
).split()
BUCKETS = {"0-4k": 4000, "4-8k": 8000, "8k+": None}  # words that an input has fewer of


@dataclass(frozen=True)
class ScoredAnswer:
    """The score of one answer."""

    task: str
    words: int  # of the input, as the data set counts them
    score: float  # 0 to 1


@dataclass(frozen=True)
class LongBenchSummary:
    """Means in percent; what has no samples is absent."""

    tasks: dict[str, dict[str, float]]  # task -> bucket or "all" -> mean over samples
    overall: dict[str, float]  # bucket or "all" -> mean over tasks
    missing: list[str]  # tasks without samples: the overall mean is then no score of LongBench-E


def bucket(words: int) -> str:
    """The name of the range of lengths that an input belongs to."""
    return next(name for name, most in BUCKETS.items() if most is None or words < most)


def summarise(scored: Iterable[ScoredAnswer]) -> LongBenchSummary:
    by_task: dict[str, dict[str, list[float]]] = {}
    for answer in scored:
        require(answer.task in TASKS, f"{answer.task!r} is no task of LongBench-E; they are {', '.join(TASKS)}")
        for name in (bucket(answer.words), "all"):
            by_task.setdefault(answer.task, {}).setdefault(name, []).append(answer.score)
    tasks = {
        task: {name: 100 * fmean(by_task[task][name]) for name in (*BUCKETS, "all") if name in by_task[task]}
        for task in TASKS
        if task in by_task
    }
    columns = {name: [means[name] for means in tasks.values() if name in means] for name in (*BUCKETS, "all")}
    overall = {name: fmean(means) for name, means in columns.items() if means}
    return LongBenchSummary(tasks, overall, [task for task in TASKS if task not in tasks])


def read_scored(folder: Path) -> list[ScoredAnswer]:
    """Read what the harness wrote to its --output_path with --log_samples: the newest file of each task."""
    newest: dict[str, Path] = {}
    for task in TASKS:
        # A name ends with a time stamp that sorts
        files = sorted(Path(folder).rglob(f"samples_longbench_{task}_e_*.jsonl"), key=lambda file: file.name)
        if files:
            newest[task] = files[-1]
    require(
        bool(newest), f"{folder} holds no samples_longbench_*_e_*.jsonl; run the harness with --output_path and --log_samples"
    )
    models = sorted({_model(file) for file in newest.values()})
    several = f"{folder} holds answers of several models or methods ({'; '.join(models)}); give each its own --output_path"
    require(len(models) == 1, several)
    return [_scored(task, case) for task, file in newest.items() for case in cases(file)]


def check(case: Case) -> None:
    """Refuse a line that is not one of LongBench-E's own files."""
    case.get("context", str, "the text that is read")
    case.get("answers", list, "a list of right answers")
    case.get("length", int, "the number of words")


def _scored(task: str, case: Case) -> ScoredAnswer:
    document = Case(case.place, case.get("doc", dict, "what was asked"))
    score = float(case.get("score", (int, float), "the score of the answer"))
    return ScoredAnswer(task, document.get("length", int, "the number of words"), score)


def _model(samples: Path) -> str:
    """The model and method that made the samples, from the results of the same run beside them."""
    results = samples.with_name(f"results_{samples.stem.rpartition('_')[2]}.json")
    try:
        settings = read_json(results, finite=False)["config"]
        return f"{settings['model']} {settings['model_args']}"
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{results} should tell with which model {samples.name} was made, and does not") from None
