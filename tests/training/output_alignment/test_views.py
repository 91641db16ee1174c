"""Two readings of a row: what they share, and where e comes from."""

from __future__ import annotations

from collections import Counter

import pytest

from lengthwise import BadInput
from lengthwise.training.output_alignment.views import SAMPLING, Views, drawn_extra, extra_range


def told(views: Views) -> list[tuple[int, int, int]]:
    """(last token read, tokens of context in the first reading, in the second) of every shared position."""
    row = list(range(views.tokens))
    first, second = row[views.first], row[views.second]
    over_first, over_second = views.shared
    one, two = first[over_first], second[over_second]
    assert one == two
    return [(token, first.index(token) + 1, second.index(token) + 1) for token in one]


@pytest.mark.parametrize("length", [2, 3, 8, 9])
def test_the_whole_overlap_is_every_token_of_both_readings(length: int) -> None:
    for extra in range(1, length):
        views = Views(length, extra)
        both = set(range(length)) & set(range(extra, length + extra))
        assert [token for token, _, _ in told(views)] == sorted(both)
        assert views.positions == len(both) >= 1


@pytest.mark.parametrize("length", [4, 5, 8, 9, 31, 32])
def test_half_keeps_contexts_of_at_least_half_and_is_never_empty(length: int) -> None:
    for extra in range(1, length // 2 + 1):
        views = Views(length, extra, "half")
        contexts = [(long, short) for _, long, short in told(views)]
        assert contexts == [(n, n - extra) for n in range(1, length + 1) if n - extra >= length / 2]
        assert views.positions == len(contexts) >= 1


@pytest.mark.parametrize("length", [8, 32])
def test_the_printed_slice_is_half_without_its_first_position_and_empty_at_the_end(length: int) -> None:
    for extra in range(1, length // 2 + 1):
        first, second = list(range(length)), list(range(extra, length + extra))
        printed = first[length // 2 + extra :], second[length // 2 : length - extra]
        assert printed[0] == printed[1]
        assert printed[0] == [token for token, _, _ in told(Views(length, extra, "half"))][1:]
    assert printed == ([], [])


def test_over_all_e_every_two_lengths_of_the_range_meet_once() -> None:
    """What makes the mean over positions the paper's expectation over l1 and l2."""
    length = 11
    met = Counter(pair[1:] for extra in range(1, length // 2 + 1) for pair in told(Views(length, extra, "half")))
    lengths = range(6, 12)
    assert met == Counter((long, short) for long in lengths for short in lengths if short < long)


def test_ranges_are_those_of_table_5() -> None:
    ends = {name: extra_range(name, 4096) for name in SAMPLING}
    assert ends == {"1..L/2": (1, 2048), "1..L/4": (1, 1024), "L/4..L/2": (1024, 2048), "1..L": (1, 4095)}


@pytest.mark.parametrize("sampling", sorted(SAMPLING))
def test_e_covers_its_range_evenly_and_its_overlap_is_never_empty(sampling: str) -> None:
    low, high = extra_range(sampling, 16)
    drawn = Counter(drawn_extra(sampling, 16, seed=3, step=step) for step in range(3000))
    assert sorted(drawn) == list(range(low, high + 1))
    expected = 3000 / (high - low + 1)
    # Pearson's statistic, far beyond its mean of one a cell for an uneven draw
    assert sum((count - expected) ** 2 / expected for count in drawn.values()) < 3 * len(drawn) + 10
    assert all(Views(16, extra).positions >= 1 for extra in drawn)


def test_e_depends_on_the_seed_and_the_step_alone() -> None:
    draws = [[drawn_extra("1..L/2", 512, seed, step) for step in range(50)] for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Views(8, 8), "readings of 8 tokens that start 8 apart have no position in common .*at most 7 apart"),
        (lambda: Views(8, 5, "half"), "overlap half.*at most 4 apart"),
        (lambda: Views(8, 0), "at least 1 token later, not 0"),
        (lambda: Views(1, 1), "at least 2 tokens, not 1"),
        (lambda: Views(8, 1, "printed"), "overlap must be one of whole, half, not 'printed'"),
        (lambda: extra_range("[1, L]", 8), "sampling must be one of 1..L/2, .* not '\\[1, L\\]'"),
        (lambda: extra_range("1..L/4", 3), "at length 3 there is no e in 1..L/4"),
    ],
)
def test_bad_input_is_refused(make: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()  # type: ignore[operator]
