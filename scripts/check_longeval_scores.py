"""Score published predictions on LongEval with our scorers, beside the scores published with them.

    python scripts/check_longeval_scores.py --data DIR

DIR holds `lines` and `topics` with the cases, SIZE_lines.jsonl and SIZE_topics.jsonl, and `predictions` with SIZE_response.txt
for every task and model. Prints a table; exit status 1 where a score differs, or the verdict on a single prediction.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput, require
from lengthwise.tasks import TASKS

FOLDERS = {"line": "lines", "topic": "topics"}
# Predictions on lines come with their accuracy and the number read out of each, those on topics with neither; these are known
# from LongChat's
TOPIC_SCORES = {("longchat-13b-16k", 5): 1.0, ("longchat-13b-16k", 10): 1.0, ("longchat-13b-16k", 20): 0.98}
PREDICTION = re.compile(r"Label: (?P<label>.*?), Predict: (?P<said>.*?)(, Parsed: (?P<parsed>.*?))?, prompt length: \d+")


@dataclass(frozen=True)
class Row:
    """One file of predictions."""

    model: str
    task: str
    size: int  # lines or topics
    ours: float
    published: float | None  # None where no score was published
    disputed: int | None  # predictions on which our verdict is not the published one; None where none was published

    @property
    def agrees(self) -> bool:
        return not self.disputed and (self.published is None or abs(self.ours - self.published) < 1e-9)


def rows(data: Path) -> Iterator[Row]:
    for task, folder in FOLDERS.items():
        files = sorted((data / "predictions" / folder).glob("*/*_response.txt"), key=lambda path: (path.parent, _size(path)))
        require(
            bool(files), f"{data} has no predictions/{folder}/MODEL/SIZE_response.txt; give the folder with LongEval's data"
        )
        for path in files:
            yield _row(task, path, _targets(task, data / folder / f"{_size(path)}_{folder}.jsonl"))


@cache
def _targets(task: str, cases: Path) -> list[str]:
    return [sample.target for sample in TASKS[task].read(ByT5Tokenizer(), cases)]


def _row(task: str, path: Path, targets: list[str]) -> Row:
    text = path.read_text(encoding="utf-8")
    found = [match for match in map(PREDICTION.fullmatch, text.splitlines()) if match]
    labels = [match["label"] for match in found]
    require(labels == targets, f"{path} does not answer the cases of its size, in their order")
    ours = [TASKS[task].score(_answer(match["said"]), target) for match, target in zip(found, targets, strict=True)]
    known = [
        (score == 1, match["parsed"] == match["label"]) for match, score in zip(found, ours, strict=True) if match["parsed"]
    ]
    disputed = sum(mine != published for mine, published in known) if known else None
    accuracy = re.search(r"^Accuracy: ([\d.]+)", text, re.M)
    published = float(accuracy[1]) if accuracy else TOPIC_SCORES.get((path.parent.name, _size(path)))
    return Row(path.parent.name, task, _size(path), sum(ours) / len(ours), published, disputed)


def _answer(said: str) -> str:
    """Answers on topics are written as a Python list of one text."""
    return str(ast.literal_eval(said)[0]) if said.startswith(("['", '["')) else said


def _size(path: Path) -> int:
    return int(path.name.partition("_")[0])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with LongEval's cases and predictions")
    data = parser.parse_args(arguments).data
    print(f"{'model':20} {'task':6} {'size':>5} {'ours':>6} {'published':>10} {'disputed':>9}")
    agree = True
    try:
        for row in rows(data):
            published = "-" if row.published is None else f"{row.published:.2f}"
            disputed = "-" if row.disputed is None else row.disputed
            mark = "" if row.agrees else "  differs"
            print(f"{row.model:20} {row.task:6} {row.size:5} {row.ours:6.2f} {published:>10} {disputed:>9}{mark}")
            agree = agree and row.agrees
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
