"""What is advised against truncation, on the same samples, at every task and length that other experiments left in a folder.

    python -m experiments.against_truncation.run runs/model --out runs/model
    python -m experiments.against_truncation.run runs/model --method answers-head --over none --out OUT     any two methods

A place is one task at one length (or one position of the gold document), or a task at all of them together, which sees what is
a little below everywhere. There the method is *above* or *below* the other where the 95 % interval of their difference on the
same samples leaves out 0, and *level* with it where it does not. Of many places some would be below by chance alone: those
*remain* below whose one-sided p-value is at most 2.5 % after Holm's correction, over the tasks and again over single places.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from experiments._lib import results
from experiments._lib.alignments import DEFAULT
from experiments._lib.command import main, option
from experiments._lib.likelihood_cells import FOLDER, Likelihoods
from experiments._lib.measure import Answers, Runs, configs
from experiments._lib.paired import Paired, holm, paired
from experiments._lib.results import SETTINGS
from experiments._lib.retrieval_tasks import RUNS
from experiments.against_truncation.page import FORMAT, told, write_pages
from lengthwise.errors import require
from lengthwise.methods.spec import TRUNCATE
from lengthwise.tasks.perplexity import compared as compared_nll

LEVEL = 0.025  # of an error anywhere, one-sided


@dataclass(frozen=True, kw_only=True)
class Options:
    folder: Path = option(help="folder of one model's experiments", positional=True)
    out: Path = option(help="folder of the page")
    method: str = option(DEFAULT, "what is held against truncation")
    over: str = option(TRUNCATE, "another method that it is held against, such as none or pmax-model")
    command: str = ""  # as typed


@dataclass(frozen=True)
class Verdict:
    """The method against the other at one place."""

    task: str
    length: int | None  # None: all of them together
    difference: str  # in points, or as a ratio of perplexities, with its interval
    said: str  # above, level or below, by itself
    n: int  # samples
    p: float  # one-sided: of a difference so far below, if the method were no worse


def against_truncation(options: Options) -> list[Verdict]:
    verdicts = all_verdicts(options.folder, options.method, options.over)
    require(bool(verdicts), f"{options.folder} holds nothing to compare; give the --out of other experiments")
    claim = (
        f"{options.method}: below {told(options.over)} at no length of any task nor at all together, after Holm's correction"
    )
    shown = {"claim": claim, "measured": counted(verdicts), "holds": not remaining(verdicts)}
    content = {
        "default": options.method,
        "over": options.over,
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "must_show": [shown],
    }
    command = f"python -m experiments.against_truncation.run {options.command}"
    results.write(options.out / "against_truncation.json", FORMAT, command, content)
    write_pages(options.out, options.out)
    return verdicts


def all_verdicts(folder: Path, method: str, over: str = TRUNCATE) -> list[Verdict]:
    """Language modelling, retrieval and code, then every set of questions."""
    verdicts: list[Verdict] = []
    if (folder / FOLDER / SETTINGS).exists():
        verdicts += by_likelihood(Likelihoods.read(folder), method, over)
    for answers in _answers(folder, RUNS):
        verdicts += by_scores(answers, method, over)
    for answers in _answers(folder, {path.name: {} for path in sorted(folder.glob("run-code*"))}):
        verdicts += by_scores(answers, method, over)
    for questions in sorted(path for path in folder.glob("questions*") if path.is_dir()):
        runs = {f"{questions.name}/{path.name}": {"multi_document_qa": path.name} for path in sorted(questions.iterdir())}
        for answers in _answers(folder, runs):
            verdicts += by_scores(answers, method, over, f"{questions.name} ")
            verdicts += by_documents(answers, method, over, f"{questions.name} ")
    return verdicts


def _answers(folder: Path, runs: Runs) -> list[Answers]:
    """The answers of these run directories, if there are any."""
    lengths = [int(config["settings"]["train_length"]) for config in configs(folder, runs).values()]
    return [Answers.read(folder, lengths[0], runs)] if lengths else []


def by_scores(answers: Answers, method: str, over: str = TRUNCATE, prefix: str = "") -> list[Verdict]:
    """Every task and length with inputs beyond the training length, and all these lengths together."""
    verdicts = []
    for task in answers.tasks:
        name, lengths = f"{prefix}{task}", [length for length in answers.lengths if _beyond(answers, over, task, length)]
        pairs = [(n, paired(*(answers.scores(m, [task], [n]) for m in (method, over)))) for n in lengths]
        verdicts += [_verdict(name, length, pair) for length, pair in pairs if pair is not None]
        everywhere = paired(*(answers.means(m, [task], lengths, len(lengths)) for m in (method, over)))
        if len(lengths) > 1 and everywhere is not None:
            verdicts.append(_verdict(name, None, everywhere))
    return verdicts


def by_documents(answers: Answers, method: str, over: str, prefix: str) -> list[Verdict]:
    """Questions over so many documents, at all places of the gold one together; tasks are called DOCUMENTS-PLACE."""
    verdicts = []
    for documents in sorted({int(task.split("-")[0]) for task in answers.tasks}):
        tasks = [task for task in answers.tasks if task.startswith(f"{documents}-")]
        if any(_beyond(answers, over, task, length) for task in tasks for length in answers.lengths):
            pair = paired(*(answers.means(m, tasks, answers.lengths, len(tasks)) for m in (method, over)))
            verdicts += [] if pair is None else [_verdict(f"{prefix}{documents} documents", None, pair)]
    return verdicts


def by_likelihood(likelihoods: Likelihoods, method: str, over: str = TRUNCATE) -> list[Verdict]:
    """A lower perplexity is above."""
    known: dict[int, tuple[Tensor, Tensor]] = {}
    for length in (n for n in likelihoods.lengths if n > likelihoods.train_length):
        ours, theirs = likelihoods.nll(method, length), likelihoods.nll(over, length)
        if ours is not None and theirs is not None:
            known[length] = ours, theirs
    verdicts = [_of_likelihood(length, *pair) for length, pair in known.items()]
    if len(known) > 1:
        # The same cases at every length: a longer continuation of each
        verdicts.append(_of_likelihood(None, *(torch.cat(some, 1) for some in zip(*known.values(), strict=True))))
    return verdicts


def _of_likelihood(length: int | None, ours: Tensor, theirs: Tensor) -> Verdict:  # [cases, tokens]
    ratio = compared_nll(ours, theirs)
    difference = f"{ratio.ratio:.4g} [{ratio.low:.4g}, {ratio.high:.4g}] times its perplexity"
    # Student's over cases: a bootstrap of 2,000 has no p-value as small as Holm may ask for
    pair = paired(*(dict(enumerate((-table.double().mean(1)).tolist())) for table in (ours, theirs)))
    p = 1.0 if pair is None else pair.p_below
    return Verdict("language modelling", length, difference, _said(1 - ratio.high, 1 - ratio.low), len(ours), p)


def _verdict(task: str, length: int | None, pair: Paired) -> Verdict:
    points = "{:+.1f} [{:+.1f}, {:+.1f}] points".format(*(100 * value for value in (pair.difference, pair.low, pair.high)))
    return Verdict(task, length, points, _said(pair.low, pair.high), pair.n, pair.p_below)


def _beyond(answers: Answers, method: str, task: str, length: int) -> bool:
    groups = (group for key, group in answers.groups.items() if (key.method, key.task, key.length) == (method, task, length))
    return any(record.tokens > answers.train_length for group in groups for record in group.values())


def _said(low: float, high: float) -> str:
    return "above" if low > 0 else "below" if high < 0 else "level"


def remaining(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those that are below for certain, of the tasks as a whole and of the single places."""
    adjusted = [(one, p) for family in _families(verdicts) for one, p in zip(family, holm([v.p for v in family]), strict=True)]
    return [one for one, p in adjusted if one.said == "below" and p <= LEVEL]


def _families(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Tasks at all their lengths, and single lengths: else a hundred of these would hide any task."""
    return [[one for one in verdicts if (one.length is None) == whole] for whole in (True, False)]


def counted(verdicts: Sequence[Verdict]) -> str:
    """How many are above, level and below, of the tasks and of the single places."""
    parts = []
    for family, what in zip(_families(verdicts), ("tasks at all their lengths", "single places"), strict=True):
        counts = Counter(one.said for one in family)
        alone = ", ".join(f"{counts[said]} {said}" for said in ("above", "level", "below"))
        parts.append(
            f"{what} ({len(family)}): {alone}, each by itself; below after Holm's correction: {len(remaining(family))}"
        )
    return "; ".join(parts)


if __name__ == "__main__":
    sys.exit(main(Options, against_truncation, __doc__))
