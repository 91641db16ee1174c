"""All figures of an analysis."""

from __future__ import annotations

from lengthwise.records.analysis import Analysis
from lengthwise.report.analysis.accounts import accounts
from lengthwise.report.analysis.bias import bias
from lengthwise.report.analysis.figure import Figure
from lengthwise.report.analysis.heads import heads
from lengthwise.report.analysis.qq import qq
from lengthwise.report.analysis.sharpness import sharpness


def figures(analysis: Analysis) -> list[Figure]:
    found = [sharpness(analysis), heads(analysis), qq(analysis)]
    if analysis.temperatures:
        found.append(accounts(analysis))
    return [*found, *bias(analysis)]
