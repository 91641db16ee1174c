"""Does the default ever fall below truncation, and what else the issue must show: computed from what was measured.

A place is one task at one length (or one position of the gold document), or a task at all of them together, which sees what is
a little below everywhere. There the default is *above* or *below* truncation where the 95 % interval of their difference on the
same samples leaves out 0, and *level* with it where it does not. Of many places some would be below by chance alone: those
*remain* below whose one-sided p-value is at most 2.5 %, an interval's share on that side, after Holm's correction. It is made
twice, over the tasks at all their lengths and over the single lengths: else a hundred of these would hide any task. Places may
share samples, as exact match and edit similarity do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.attention_alignment.by_place import NAME as QUESTIONS
from experiments.attention_alignment.by_place import gain, middle_gain, numbers, task_of, tokens
from experiments.attention_alignment.language_modelling_page import ratio_told
from experiments.attention_alignment.likelihoods import Likelihoods
from experiments.attention_alignment.must_show import Shown
from experiments.attention_alignment.paired import Paired, compared, holm, paired_means
from experiments.attention_alignment.paper_questions import POSITIONS
from experiments.attention_alignment.results import Results
from experiments.attention_alignment.tables import points_told
from lengthwise.evaluation.sweep.named_methods import TRUNCATE
from lengthwise.tasks.perplexity import compared as compared_nll

PLAIN = "none"
PAPERS = "pmax-model"  # the paper's own method, unhedged
LEVEL = 0.025  # of an error anywhere, one-sided
MOST = 1.25  # times the perplexity at the training length
FAR = (8192, 15000)
UNKNOWN = "not measured"


@dataclass(frozen=True)
class Verdict:
    """The default against truncation at one place."""

    task: str
    length: int | None  # None: all of them together
    difference: str  # in points, or as a ratio of perplexities, with its interval
    said: str  # above, level or below, by itself
    n: int  # samples
    p: float  # one-sided: of a difference so far below, if the default were no worse

    @property
    def at(self) -> str:
        return "all" if self.length is None else f"{self.length:,}"


def by_scores(results: Results, method: str, prefix: str = "") -> list[Verdict]:
    """Every task and length with inputs beyond the training length, and all these lengths together."""
    found = []
    for task in results.tasks:
        name, lengths = f"{prefix}{task}", [length for length in results.lengths if _beyond(results, task, length)]
        pairs = [(n, compared(*(results.scores(one, [task], [n]) for one in (method, TRUNCATE)))) for n in lengths]
        found += [_verdict(name, length, pair) for length, pair in pairs if pair is not None]
        everywhere = compared(*(results.means(one, [task], lengths, len(lengths)) for one in (method, TRUNCATE)))
        if len(lengths) > 1 and everywhere is not None:
            found.append(_verdict(name, None, everywhere))
    return found


def by_documents(results: Results, method: str, prefix: str) -> list[Verdict]:
    """Questions over so many documents, at all places of the gold one together."""
    beyond = [n for n in numbers(results) if any(_beyond(results, task_of(n, at), tokens(results, n)) for at in POSITIONS[n])]
    pairs = [(n, gain(results, method, TRUNCATE, n)) for n in beyond]
    return [_verdict(f"{prefix}{n} documents", None, pair) for n, pair in pairs if pair is not None]


def _verdict(task: str, length: int | None, pair: Paired) -> Verdict:
    return Verdict(task, length, f"{points_told(pair)} points", _said(pair.low, pair.high), pair.n, pair.p_below)


def _beyond(results: Results, task: str, length: int) -> bool:
    return any(record.tokens > results.train_length for record in results.answers(TRUNCATE, task, length).values())


def by_likelihood(likelihoods: Likelihoods, method: str) -> list[Verdict]:
    """A lower perplexity is above."""
    known: dict[int, tuple[Tensor, Tensor]] = {}
    for length in (n for n in likelihoods.lengths if n > likelihoods.train_length):
        ours, theirs = likelihoods.nll(method, length), likelihoods.nll(TRUNCATE, length)
        if ours is not None and theirs is not None:
            known[length] = ours, theirs
    found = [_of_likelihood(length, *pair) for length, pair in known.items()]
    if len(known) > 1:
        # The same cases at every length: a longer continuation of each
        found.append(_of_likelihood(None, *(torch.cat(some, 1) for some in zip(*known.values(), strict=True))))
    return found


def _of_likelihood(length: int | None, ours: Tensor, theirs: Tensor) -> Verdict:  # [cases, tokens]
    ratio = compared_nll(ours, theirs)
    said, told = _said(1 - ratio.high, 1 - ratio.low), f"{ratio_told(ratio)} times its perplexity"
    return Verdict("language modelling", length, told, said, len(ours), _p_above(ours, theirs))


def _p_above(nll: Tensor, other: Tensor) -> float:  # [cases, continuation]
    """Student's, of a perplexity so far above the other's: a bootstrap of 2,000 has no p-value as small as Holm may ask for."""
    pair = paired_means(*(dict(enumerate((-one.double().mean(1)).tolist())) for one in (nll, other)))
    return 1.0 if pair is None else pair.p_below


def remaining(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those that are below for certain, of the tasks as a whole and of the single places."""
    return [one for family in _families(verdicts) for one, p in _adjusted(family) if one.said == "below" and p <= LEVEL]


def _families(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Tasks at all their lengths, and single lengths; what is corrected for how many there are of it."""
    return [[one for one in verdicts if (one.length is None) == whole] for whole in (True, False)]


def _adjusted(family: Sequence[Verdict]) -> list[tuple[Verdict, float]]:
    return list(zip(family, holm([one.p for one in family]), strict=True))


def summed_up(verdicts: Sequence[Verdict], method: str) -> str:
    """In one paragraph."""
    if not verdicts:
        return f"{method} and truncation have not answered the same samples yet."
    parts = [f"**{method} against truncation, {_counted(verdicts)}.**"]
    for name, some in (
        ("Below by themselves", [one for one in verdicts if one.said == "below"]),
        ("After the correction", remaining(verdicts)),
    ):
        if some:
            parts.append(f"{name}: {'; '.join(map(_told, some))}.")
    return " ".join(parts)


def _counted(verdicts: Sequence[Verdict]) -> str:
    parts = []
    for family, what in zip(_families(verdicts), ("tasks at all their lengths", "single places"), strict=True):
        if not family:
            continue
        counts, left = Counter(one.said for one in family), len(remaining(family))
        alone = ", ".join(f"{counts[said]} {said}" for said in ("above", "level", "below"))
        nearest, p = min(_adjusted(family), key=lambda pair: pair[0].p)
        near = f"nearest to it {_told(nearest)}, adjusted p {p:.2g}"
        parts.append(f"{what} ({len(family)}): {alone}, each by itself; below after Holm's correction: {left} ({near})")
    return "; ".join(parts)


def _told(one: Verdict) -> str:
    return f"{one.task} at {one.at} ({one.difference})"


def must_show(
    answers: Mapping[str, Results], likelihoods: Likelihoods | None, verdicts: Sequence[Verdict], method: str
) -> list[Shown]:
    """`answers` are those of question answering, by the name of the set of questions."""
    claim = f"{method}: below truncation at no length of any task nor at all together, after Holm's correction"
    measured = _counted(verdicts) if verdicts else UNKNOWN
    shown = [Shown(claim, measured, not remaining(verdicts) if verdicts else None)]
    shown += [one for n in FAR for one in _ratios(likelihoods, method, n)]
    asked = answers or {QUESTIONS: Results([], 0)}
    return [*shown, *(one for name, results in asked.items() for one in _middle(name, results, method))]


def _ratios(likelihoods: Likelihoods | None, method: str, length: int) -> Iterator[Shown]:
    bounds = {PLAIN: None, PAPERS: MOST, method: MOST}
    for name in dict.fromkeys((method, PAPERS, PLAIN)):
        bound = bounds[name]
        wanted = f"at most {bound}" if bound else "shown beside it"
        which = f"{name} (unhedged, not the advised one)" if name == PAPERS != method else name
        claim = f"language modelling, {which}: perplexity at {length:,} over that at the training length: {wanted}"
        nll = None if likelihoods is None else likelihoods.nll(name, length)
        base = None if likelihoods is None else likelihoods.nll(name, likelihoods.train_length)
        if nll is None or base is None:
            yield Shown(claim, UNKNOWN, None)
            continue
        ratio = compared_nll(nll, base)
        yield Shown(claim, ratio_told(ratio), None if bound is None else ratio.ratio <= bound)


def _middle(name: str, results: Results, method: str) -> Iterator[Shown]:
    """Gains over the plain model, over all places and in the middle; there is nothing to hold but that they are shown."""
    for documents in POSITIONS:
        for one in dict.fromkeys((PAPERS, method)):
            pair, middle = (find(results, one, PLAIN, documents) for find in (gain, middle_gain))
            measured = f"{points_told(pair)} points; in the middle {points_told(middle)} more than at the ends"
            known = pair is not None and middle is not None
            yield Shown(f"{name}, {documents} documents, {one} - {PLAIN}: with intervals", measured if known else UNKNOWN, None)


def _said(low: float, high: float) -> str:
    return "above" if low > 0 else "below" if high < 0 else "level"
