"""What is asked: tasks made of what the embedded model never saw in training, so that its answers are no memories.

Names of lines and labels of topics are the held-out ones, the number hides in the package's prose, and where a data folder is
given also in held-out novels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments._lib import held_out, novels
from experiments._lib.measure import Asked, digest
from lengthwise.common.text import shipped_prose
from lengthwise.errors import require
from lengthwise.tasks import TASKS as CATALOGUE
from lengthwise.tasks import line, passkey, topic

NOVELS = "passkey-novels"
# Lines as documents with a question over them: flan-t5-small, which answers no question of LongEval's wording, knows these
TOLD = "line-told"
TOLD_WORDING = (
    "Answer the question from the documents below; one of them tells the answer.",
    "Document: The number of {name} is {number}.",
    "Question: What is the number of {name}? Answer:",
)
KEYS = "ruler_niah_multikey_1"  # one number wanted, among others that are told alike
# The most important first
TASKS = (NOVELS, "passkey", "line", "topic", TOLD, KEYS)
# A run directory holds one material a task; what its tasks are called in our tables, where that differs
RUNS: dict[str, dict[str, str]] = {"run": {}, "run-novels": {"passkey": NOVELS}, "run-told": {"line": TOLD}}


def asked(names: Sequence[str], data: Path | None) -> list[Asked]:
    """Those named, or all there are, the most important first."""
    known = {task.name: task for task in _all(data)}
    lacking = [name for name in names if name not in known]
    require(not lacking, f"there is no task {lacking[:1]}; known are {', '.join(known)}, and with --data FOLDER {NOVELS}")
    return [known[name] for name in TASKS if name in (names or known)]


def _all(data: Path | None) -> list[Asked]:
    names = tuple(filter(held_out.word, line.ADJECTIVES)), tuple(filter(held_out.word, line.NOUNS))
    labels = tuple(filter(held_out.label, topic.LABELS))
    prose = f"the package's prose ({digest(shipped_prose())})"
    words = f"{len(names[0])} and {len(names[1])} words never used as names in training ({digest(str(names))})"
    topics = f"{len(labels)} labels never used in training ({digest(str(labels))}) and {prose}"
    told = partial(line.samples, names=names, wording=TOLD_WORDING)
    tasks = [
        Asked("line", "line", "run", partial(line.samples, names=names), words),
        Asked(TOLD, "line", "run-told", told, f"{words}, told as documents"),
        Asked("topic", "topic", "run", partial(topic.samples, labels=labels), topics),
        Asked("passkey", "passkey", "run", passkey.samples, prose),
        Asked(KEYS, KEYS, "run", CATALOGUE[KEYS].samples, prose),
    ]
    if data is not None:
        paths = novels.evaluation(data)
        filler = novels.filler([path.read_text(encoding="utf-8") for path in paths])
        stems = ", ".join(path.stem for path in paths)
        material = f"novels never read in training: {stems} ({digest(' '.join(filler))})"
        tasks.append(Asked(NOVELS, "passkey", "run-novels", partial(passkey.samples, filler=filler), material))
    return tasks
