"""Numbers and texts as pages write them, in HTML and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise.records import Cell

LONGEST_ANSWER = 160  # characters shown
STATISTICS = {"pmax": "P_max kept", "entropy": "entropy kept", "answers": "fitted to answers"}
CALIBRATED = {
    "pmax": "calibrated to keep P_max as at training length",
    "entropy": "calibrated to keep entropy as at training length",
    "answers": "fitted to answers",
}
SCOPES = {"model": "one temperature for the model", "layer": "one a layer", "head": "one a layer and head"}


def percent(value: float) -> str:
    """Per cent, with a space that does not break."""
    return f"{100 * value:.0f}\u00a0%"


def interval(cell: Cell) -> str:
    """A mean and its interval as a table has them: 93 (84-97)."""
    return f"{100 * cell.mean:.0f} ({100 * cell.low:.0f}-{100 * cell.high:.0f})"


def percent_of(cell: Cell) -> str:
    """A mean, its interval and the number of samples, as a hover shows them."""
    return f"{percent(cell.mean)} ({100 * cell.low:.0f} to {100 * cell.high:.0f}), n = {cell.n}"


def tokens_at(length: int, data: str = "") -> str:
    """A length, and of which file."""
    return f"{data}, {length:,} tokens" if data else f"{length:,} tokens"


def times(length: int, train_length: int) -> str:
    """How far beyond the training length: 8 times, 2.8 times."""
    ratio = length / train_length
    if ratio <= 1:
        return "the training length" if ratio == 1 else "below the training length"
    return f"{f'{ratio:.0f}' if ratio >= 10 else f'{ratio:.2g}'} times the training length"


def listed(words: list[str]) -> str:
    """Words as a sentence lists them: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def shortened(answer: str) -> str:
    """An answer in one line, cut where it is long."""
    answer = " ".join(answer.split())
    return answer if len(answer) <= LONGEST_ANSWER else f"{answer[:LONGEST_ANSWER]} ..."


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(plain, cells))} |"


def plain(text: str) -> str:
    """Text that Markdown takes as it is: one line, no cell borders, no HTML."""
    text = " ".join(text.split())
    for character in "\\|<`*_[":
        text = text.replace(character, f"\\{character}")
    return text
