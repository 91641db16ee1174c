"""Does the default ever fall below truncation, and what else the issue must show: computed from what was measured.

A place is one task at one length (or one position of the gold document). There the default is *above* or *below* truncation
where the 95 % interval of their difference on the same samples leaves out 0, and *level* with it where it does not. Of many
places that are level in truth one in forty would be said to be below by chance alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.attention_alignment.by_place import gain, middle_gain, numbers
from experiments.attention_alignment.language_modelling_page import ratio_told
from experiments.attention_alignment.likelihoods import Likelihoods
from experiments.attention_alignment.must_show import Shown
from experiments.attention_alignment.paired import compared
from experiments.attention_alignment.results import Results
from experiments.attention_alignment.tables import points_told
from lengthwise.sweep.contenders import TRUNCATE
from lengthwise.tasks.perplexity import compared as compared_nll

PLAIN = "none"
CHANCE = 0.025  # share of level places whose interval lies below 0
MOST = 1.25  # times the perplexity at the training length
FAR = (8192, 15000)


@dataclass(frozen=True)
class Verdict:
    """The default against truncation at one place."""

    task: str
    length: int
    difference: str  # in points, or as a ratio of perplexities, with its interval
    said: str  # above, level or below
    n: int  # samples


def by_scores(results: Results, method: str, prefix: str = "") -> list[Verdict]:
    """Every task and length with inputs beyond the training length."""
    found = []
    for task in results.tasks:
        for length in results.lengths:
            ours, theirs = (results.scores(one, [task], [length]) for one in (method, TRUNCATE))
            pair = compared(ours, theirs)
            if pair is not None and _beyond(results, task, length):
                said = _said(pair.low, pair.high)
                found.append(Verdict(f"{prefix}{task}", length, f"{points_told(pair)} points", said, pair.n))
    return found


def _beyond(results: Results, task: str, length: int) -> bool:
    return any(record.tokens > results.train_length for record in results.answers(TRUNCATE, task, length).values())


def by_likelihood(likelihoods: Likelihoods, method: str) -> list[Verdict]:
    """A lower perplexity is above."""
    found = []
    for length in (n for n in likelihoods.lengths if n > likelihoods.train_length):
        ours, theirs = likelihoods.nll(method, length), likelihoods.nll(TRUNCATE, length)
        if ours is not None and theirs is not None:
            ratio = compared_nll(ours, theirs)
            said = _said(1 - ratio.high, 1 - ratio.low)
            found.append(Verdict("language modelling", length, f"{ratio_told(ratio)} times its perplexity", said, len(ours)))
    return found


def summed_up(verdicts: Sequence[Verdict], method: str) -> str:
    """In one paragraph."""
    if not verdicts:
        return f"{method} and truncation have not answered the same samples yet."
    counts = {said: sum(one.said == said for one in verdicts) for said in ("above", "level", "below")}
    places = len(verdicts)
    below = [f"{one.task} at {one.length:,} ({one.difference})" for one in verdicts if one.said == "below"]
    by_chance = f"of {places} level places {CHANCE * places:.1f} would be called below by chance alone"
    where = f"Below: {'; '.join(below)}; {by_chance}." if below else f"Nowhere is it below for certain; {by_chance}."
    told = f"{counts['above']} above, {counts['level']} level, {counts['below']} below"
    return f"**{method} against truncation, at {places} places: {told}.** {where}"


def must_show(
    answers: Mapping[str, Results], likelihoods: Likelihoods | None, verdicts: Sequence[Verdict], method: str
) -> list[Shown]:
    """`answers` are those of question answering, by the name of the set of questions."""
    certain = [one for one in verdicts if one.said == "below"]
    claim = f"{method}: below truncation at no length of any task, beyond what chance allows"
    allowed = CHANCE * len(verdicts)
    measured = (
        f"{len(certain)} of {len(verdicts)} places below, {allowed:.1f} expected by chance" if verdicts else "not measured"
    )
    shown = [Shown(claim, measured, len(certain) <= allowed if verdicts else None)]
    shown += [one for n in FAR for one in _ratios(likelihoods, method, n)]
    return [*shown, *(one for name, results in answers.items() for one in _middle(name, results, method))]


def _ratios(likelihoods: Likelihoods | None, method: str, length: int) -> Iterator[Shown]:
    for name, bound in ((method, MOST), (PLAIN, None)):
        wanted = f"at most {bound}" if bound else "shown beside it"
        claim = f"language modelling, {name}: perplexity at {length:,} over that at the training length: {wanted}"
        nll = None if likelihoods is None else likelihoods.nll(name, length)
        base = None if likelihoods is None else likelihoods.nll(name, likelihoods.train_length)
        if nll is None or base is None:
            yield Shown(claim, "not measured", None)
            continue
        ratio = compared_nll(nll, base)
        yield Shown(claim, ratio_told(ratio), None if bound is None else ratio.ratio <= bound)


def _middle(name: str, results: Results, method: str) -> Iterator[Shown]:
    """Gains over the plain model, over all places and in the middle; there is nothing to hold but that they are shown."""
    for documents in numbers(results):
        for one in dict.fromkeys(("pmax-model", method)):
            pair, middle = (find(results, one, PLAIN, documents) for find in (gain, middle_gain))
            if pair is not None and middle is not None:
                claim = f"{name}, {documents} documents, {one} - {PLAIN}: with intervals"
                yield Shown(
                    claim, f"{points_told(pair)} points; in the middle {points_told(middle)} more than at the ends", None
                )


def _said(low: float, high: float) -> str:
    return "above" if low > 0 else "below" if high < 0 else "level"
