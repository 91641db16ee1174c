"""What an analysis found, in sentences."""

from __future__ import annotations

from lengthwise.analysis.page.accounts import ACCOUNTS
from lengthwise.analysis.records import Analysis, AtLength
from lengthwise.report.formatting import listed


def findings(analysis: Analysis) -> list[str]:
    """Empty while the analysis has not got beyond the training length."""
    trained, longest = analysis.trained, analysis.lengths[-1]
    if trained is None or longest.length <= trained.length:
        return []
    found = [_sharpness(trained, longest), _heads(analysis), _temperatures(analysis), _logits(trained, longest)]
    return [*found, _sights(analysis)] if analysis.sights else found


def _sharpness(trained: AtLength, longest: AtLength) -> str:
    (p0, h0), (p1, h1) = ((one.mean("p_max"), one.mean("entropy")) for one in (trained, longest))
    if p1 >= p0:
        return f"Attention does not disperse: from {_span(trained, longest)} the mean P_max goes from {p0:.3f} to {p1:.3f}."
    return (
        f"Attention disperses: from {_span(trained, longest)} the mean P_max falls from {p0:.3f} to {p1:.3f}, and the mean "
        f"entropy goes from {h0:.2f} to {h1:.2f} nats."
    )


def _heads(analysis: Analysis) -> str:
    first = analysis.heads[0]
    falls = [one.fall for one in analysis.heads if one.fall > 0]
    if not falls:
        return "No head disperses: P_max falls in none of them."
    many = next(k for k in range(1, len(falls) + 1) if 2 * sum(falls[:k]) >= sum(falls))
    return (
        f"Head {first.head} of layer {first.layer} disperses most, P_max from {first.p_max_train:.3f} to "
        f"{first.p_max_longest:.3f}; {many} of {len(analysis.heads)} heads account for half of all that is lost."
    )


def _temperatures(analysis: Analysis) -> str:
    last = analysis.temperatures[-1]
    told = {ACCOUNTS[name].name: getattr(last, name) for name in ACCOUNTS} | {"the log law": last.log_law}
    parts = [f"{name} {tau:.3f}" for name, tau in told.items() if tau is not None]
    missing = [name for name, tau in told.items() if tau is None]
    silent = f"; {listed(missing)} {'has' if len(missing) == 1 else 'have'} none" if missing else ""
    return f"Temperature at {last.length:,} tokens: {listed(parts)}{silent}."


def _logits(trained: AtLength, longest: AtLength) -> str:
    straight = [f"{one.qq_r:.3f}" for one in (trained, longest) if one.qq_r is not None]
    qq = f"their QQ correlation is {' and '.join(straight)}" if straight else "they are all equal"
    return (
        f"The propositions assume Gaussian logits in the first layer ({qq}) whose largest entry does not grow (it goes from "
        f"{trained.top:.2f} to {longest.top:.2f}); their sigma goes from {trained.sigma:.2f} to {longest.sigma:.2f}."
    )


def _sights(analysis: Analysis) -> str:
    near, far = analysis.sights[0], analysis.sights[-1]
    n0, n1 = analysis.train_length, analysis.lengths[-1].length
    return (
        f"By their bias alone heads would look {near.sight_train:.0f} (head {near.head}) to {far.sight_train:.0f} tokens away "
        f"(head {far.head}) at {n0:,} tokens, and {near.sight_longest:.0f} to {far.sight_longest:.0f} at {n1:,}."
    )


def _span(trained: AtLength, longest: AtLength) -> str:
    return f"{trained.length:,} to {longest.length:,} tokens"
