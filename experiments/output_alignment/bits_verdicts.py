"""What the page says in words, each sentence from the numbers alone; None where they are not there yet."""

from __future__ import annotations

from collections.abc import Callable

from experiments.output_alignment.bits_configurations import FIGURES, TEST_LENGTH, TRAIN_LENGTH, Configuration, Curve
from experiments.output_alignment.bits_findings import answer_at, continuation, excursion, flatness, holds_to, loss_at, spread

Grouped = dict[Configuration, list[Curve]]

NEARLY_PERFECT = 35  # the paper's words for 1/sqrt are "nearly perfect" up to there
ONE_BIT = 1.0  # squared: an error of one bit
FLAT = 3.0
PAPERS_MEAN = 1e-5  # the paper's loss for means, at any length


def nearly_perfect(grouped: Grouped) -> str | None:
    """Length by 1/sqrt."""
    plain, rsqrt = (grouped.get(Configuration("length", function=name)) for name in ("identity", "rsqrt"))
    if not plain or not rsqrt:
        return None
    at, before = loss_at(rsqrt, NEARLY_PERFECT), loss_at(plain, NEARLY_PERFECT)
    reach = spread([holds_to(curve, ONE_BIT) for curve in rsqrt])
    said = answer_at(rsqrt, NEARLY_PERFECT)
    verdict = "is" if at.high <= ONE_BIT else "is not"
    share = at.middle / loss_at(plain, TEST_LENGTH).middle
    return (
        f"Length, 1/sqrt, no positions: at {NEARLY_PERFECT} the loss is {at.middle:.3g} [{at.low:.3g}, {at.high:.3g}] over "
        f"{at.seeds} seeds, where the plain target has {before.middle:.4g} [{before.low:.4g}, {before.high:.4g}]; the answer "
        f"is {said.middle:.3g} [{said.low:.3g}, {said.high:.3g}]. Within one bit it {verdict}: that holds up to length "
        f"{reach.middle:g} [{reach.low:g}, {reach.high:g}]. On a linear chart as high as the plain target's loss at "
        f"{TEST_LENGTH} the loss at {NEARLY_PERFECT} stands at {share:.1%} of the height."
    )


def order(grouped: Grouped) -> str | None:
    """Of the functions, for lengths; the paper says that all of its three improve on the plain target."""
    found = {one.function: loss_at(grouped[one], NEARLY_PERFECT) for one in FIGURES["1c"] if one in grouped}
    plain = found.get("identity")
    if plain is None or len(found) < 2:
        return None
    ranked = sorted(found, key=lambda name: found[name].middle)
    listed = ", ".join(f"{name} {found[name].middle:.3g}" for name in ranked)
    better = [name for name in ranked if found[name].high < plain.low]
    unclear = [name for name in ranked if name not in (*better, "identity")]
    words = f"Every seed is better than every seed of the plain target with {' and '.join(better) or 'none'}"
    words += f"; with {' and '.join(unclear)} seeds overlap or do worse." if unclear else "."
    return f"Length, no positions, loss at {NEARLY_PERFECT} from best to worst: {listed}. {words}"


def why(grouped: Grouped) -> str | None:
    """How far each function must leave its training range, and where it goes there."""
    own = [one for one in FIGURES["1c"] if one in grouped]
    if not own:
        return None
    ranges = ", ".join(f"{one.function} {excursion(one, TEST_LENGTH):.2g}" for one in own)
    words = []
    for one in own:
        said = answer_at(grouped[one], TEST_LENGTH)
        words.append(
            f"{one.function} {continuation(one, TEST_LENGTH):.3g} ({said.middle:.3g} [{said.low:.3g}, {said.high:.3g}])"
        )
    return (
        f"Why: up to {TEST_LENGTH} the targets leave their training range by so many times its size: {ranges}. Without "
        "positions EOS sees a length l only through means over l + 2 tokens, and 1 / (l + 2) leaves its range by 0.26. A "
        f"network that went straight on in it would answer at {TEST_LENGTH}, with what the trained ones answer in parentheses: "
        f"{', '.join(words)}."
    )


def not_the_smaller_the_better(grouped: Grouped) -> str | None:
    """1/y leaves its range less than 1/sqrt, and must be taken back by a steeper inverse."""
    ours, papers = (grouped.get(Configuration("length", function=name)) for name in ("reciprocal", "rsqrt"))
    if not ours or not papers:
        return None
    found, other = loss_at(ours, NEARLY_PERFECT), loss_at(papers, NEARLY_PERFECT)
    words = (
        "worse" if found.low > other.high else "better" if found.high < other.low else "neither better nor worse for certain"
    )
    return (
        f"`reciprocal` leaves its range less than 1/sqrt and does {words}: {found.middle:.3g} [{found.low:.3g}, "
        f"{found.high:.3g}] at {NEARLY_PERFECT}. Taking an answer z back multiplies its error by l^2 there "
        "and by 2 l^1.5 with 1/sqrt."
    )


def flat_mean(grouped: Grouped) -> str | None:
    found = []
    for kind in ("uniform", "uniform ones"):
        if curves := grouped.get(Configuration("mean", kind=kind)):
            ratio = spread([flatness(curve, TRAIN_LENGTH, TEST_LENGTH) for curve in curves])
            start, end = loss_at(curves, TRAIN_LENGTH), loss_at(curves, TEST_LENGTH)
            words = "within" if ratio.high <= FLAT else "not within"
            low = sum(max(curve.losses) <= PAPERS_MEAN for curve in curves)
            found.append(
                f"{kind} bits: {start.middle:.2g} at {TRAIN_LENGTH}, {end.middle:.2g} at {TEST_LENGTH}, greatest over first "
                f"{ratio.middle:.3g} [{ratio.low:.3g}, {ratio.high:.3g}], {words} a factor of {FLAT:g}; {low} of {len(curves)} "
                f"seeds stay below {PAPERS_MEAN:g}, the paper's loss, at every length"
            )
    if not found:
        return None
    guess = 1 / (4 * TEST_LENGTH)
    return (
        f"Mean, no positions, from {TRAIN_LENGTH} to {TEST_LENGTH}: {'; '.join(found)}. (A guess of a half would lose "
        f"{guess:g} on {TEST_LENGTH} uniform bits.)"
    )


def every_encoding_fails(grouped: Grouped) -> str | None:
    own = {one.positions: grouped[one] for one in FIGURES["1b"] if one in grouped}
    if len(own) < len(FIGURES["1b"]):
        return None
    listed = ", ".join(
        f"{name} {loss_at(curves, TRAIN_LENGTH).middle:.2g} -> {loss_at(curves, TEST_LENGTH).middle:.3g}"
        for name, curves in own.items()
    )
    return f"Length, plain target, loss at {TRAIN_LENGTH} -> {TEST_LENGTH}: {listed}."


VERDICTS: tuple[Callable[[Grouped], str | None], ...] = (
    nearly_perfect,
    order,
    why,
    not_the_smaller_the_better,
    flat_mean,
    every_encoding_fails,
)
