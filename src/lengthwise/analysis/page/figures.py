"""All figures of an analysis."""

from __future__ import annotations

from lengthwise.analysis.page.accounts import accounts
from lengthwise.analysis.page.bias import bias
from lengthwise.analysis.page.figure import Figure
from lengthwise.analysis.page.heads import heads
from lengthwise.analysis.page.qq import qq
from lengthwise.analysis.page.sharpness import sharpness
from lengthwise.analysis.records import Analysis


def figures(analysis: Analysis) -> list[Figure]:
    found = [sharpness(analysis), heads(analysis), qq(analysis)]
    if analysis.temperatures:
        found.append(accounts(analysis))
    return [*found, *bias(analysis)]
