"""Runs of keys against a boolean mask written out key by key."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from lengthwise.attention.visible import Visible
from lengthwise.errors import BadInput
from tests.helpers.rows import CASES, keys_of

SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)
Padding = list[list[bool]]


def written_out(
    queries: int, keys: int, causal: bool, window: int | None, offset: int | None, padding: Padding | None = None
) -> Tensor:  # [batch or 1, queries, keys]
    def sees(query: int, key: int, real: list[bool]) -> bool:
        own = query + (keys - queries if offset is None else offset)
        if causal and key > own:
            return False
        if window is not None and abs(key - own) >= window:
            return False
        return real[key] and (padding is None or real[own])

    entries = padding or [[True] * keys]
    return torch.tensor([[[sees(i, j, real) for j in range(keys)] for i in range(queries)] for real in entries])


@st.composite
def paddings(draw: st.DrawFn, keys: int) -> Padding:
    """Padding on the left, on the right, in holes, or everywhere."""
    batch = draw(st.integers(1, 3))
    if draw(st.booleans()):
        return [draw(st.lists(st.booleans(), min_size=keys, max_size=keys)) for _ in range(batch)]
    edges = [sorted(draw(st.tuples(st.integers(0, keys), st.integers(0, keys)))) for _ in range(batch)]
    return [[first <= key < last for key in range(keys)] for first, last in edges]


@st.composite
def padded(draw: st.DrawFn) -> tuple[Visible, Tensor]:
    """Queries that stand on keys, with padding; and their mask written out."""
    keys = draw(st.integers(1, 8))
    queries = draw(st.integers(1, keys))
    offset = draw(st.none() | st.integers(0, keys - queries))
    causal, window = draw(st.booleans()), draw(st.none() | st.integers(1, 9))
    padding = draw(paddings(keys))
    visible = Visible.build(queries, keys, causal=causal, window=window, offset=offset, padding=torch.tensor(padding))
    return visible, written_out(queries, keys, causal, window, offset, padding)


@SETTINGS
@given(
    queries=st.integers(1, 9),
    keys=st.integers(1, 9),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 10),
    offset=st.none() | st.integers(-4, 12),
)
def test_a_built_mask_equals_the_mask_written_out(
    queries: int, keys: int, causal: bool, window: int | None, offset: int | None
) -> None:
    visible = Visible.build(queries, keys, causal=causal, window=window, offset=offset)
    expected = written_out(queries, keys, causal, window, offset)
    assert torch.equal(visible.mask(), expected)
    assert torch.equal(visible.count, expected.sum(-1))
    assert visible.is_full == bool(expected.all())
    assert visible.queries == queries
    assert visible.position.tolist() == [i + (keys - queries if offset is None else offset) for i in range(queries)]


@SETTINGS
@given(case=padded())
def test_a_padded_mask_equals_the_mask_written_out(case: tuple[Visible, Tensor]) -> None:
    visible, expected = case
    assert torch.equal(visible.mask(), expected)
    assert torch.equal(visible.count, expected.sum(-1))
    assert visible.is_full == bool(expected.all())


@SETTINGS
@given(case=padded(), data=st.data())
def test_rows_entries_and_slices_of_keys_are_slices_of_the_mask(case: tuple[Visible, Tensor], data: st.DataObject) -> None:
    visible, expected = case
    batch, queries, keys = expected.shape
    first = data.draw(st.integers(0, queries - 1))
    last = data.draw(st.integers(first + 1, queries))
    entry = data.draw(st.integers(0, batch - 1))
    key = data.draw(st.integers(0, keys - 1))
    rows = visible.rows(first, last)
    assert torch.equal(rows.mask(), expected[:, first:last])
    assert torch.equal(rows.count, expected[:, first:last].sum(-1))
    assert torch.equal(rows.position, visible.position[first:last])
    assert torch.equal(visible.entry(entry).mask(), expected[entry : entry + 1])
    assert torch.equal(visible.mask(key), expected[..., key:])
    assert torch.equal(visible.mask(key, key + 1), expected[..., key : key + 1])


@SETTINGS
@given(case=padded())
def test_n_is_the_count_of_every_row_that_sees_something(case: tuple[Visible, Tensor]) -> None:
    visible, expected = case
    count = expected.sum(-1)
    assert visible.n.shape[:2] == (len(expected), 1)
    n = visible.n[:, 0].expand_as(count)
    assert torch.equal(n[count > 0], count[count > 0])


@SETTINGS
@given(keys=st.integers(1, 7), causal=st.booleans(), window=st.none() | st.integers(1, 8), data=st.data())
def test_spans_are_named_where_every_row_sees_one_block(
    keys: int, causal: bool, window: int | None, data: st.DataObject
) -> None:
    padding = data.draw(paddings(keys))
    assume(all(any(real) for real in padding))
    visible = Visible.build(keys, keys, causal=causal, window=window, padding=torch.tensor(padding))
    mask = written_out(keys, keys, causal, window, None, padding)
    assert visible.spans == blocks(mask, lambda a, b, i, j: a <= i < b and a <= j < b)
    found = blocks(mask, lambda a, b, i, j: a <= j <= i < b)
    # A window that never binds may go unnoticed beside padding: None is the slower way, not a wrong one
    assert visible.causal_spans == found or (window is not None and visible.causal_spans is None)


def blocks(mask: Tensor, rule: Callable[[int, int, int, int], bool]) -> list[tuple[int, int]] | None:
    """The span [a, b) of each entry whose mask is the rule's, or None where any entry has none."""
    found = []
    for entry in mask.tolist():
        size = len(entry)
        spans = [(a, b) for a in range(size) for b in range(a + 1, size + 1)]
        fits = [(a, b) for a, b in spans if all(entry[i][j] == rule(a, b, i, j) for i in range(size) for j in range(size))]
        if not fits:
            return None
        found += fits
    return found


def test_a_full_mask_has_one_n_for_all_rows() -> None:
    visible = Visible.build(5, 5)
    assert visible.is_full
    assert visible.spans == [(0, 5)]
    assert visible.causal_spans is None
    assert visible.n.tolist() == [[[5]]]


def test_a_causal_mask_has_an_n_for_every_row() -> None:
    visible = Visible.build(4, 4, causal=True)
    assert not visible.is_full
    assert visible.spans is None
    assert visible.causal_spans == [(0, 4)]
    assert visible.n.tolist() == [[[1, 2, 3, 4]]]


def test_padding_on_either_side_moves_the_spans() -> None:
    padding = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]])
    assert Visible.build(5, 5, padding=padding).spans == [(2, 5), (0, 4)]
    assert Visible.build(5, 5, padding=padding).n.tolist() == [[[3]], [[4]]]
    assert Visible.build(5, 5, causal=True, padding=padding).causal_spans == [(2, 5), (0, 4)]


def test_padding_with_nothing_to_hide_leaves_a_full_mask() -> None:
    visible = Visible.build(3, 3, padding=torch.ones(2, 3, dtype=torch.bool))
    assert visible.is_full
    assert visible.hidden is None


@pytest.mark.parametrize("causal", [True, False])
def test_a_filled_cache_has_no_spans(causal: bool) -> None:
    visible = Visible.build(2, 5, causal=causal)
    assert visible.spans is None
    assert visible.causal_spans is None
    assert visible.count.tolist() == ([[4, 5]] if causal else [[5, 5]])


def test_holes_are_hidden_and_not_counted() -> None:
    visible = Visible.build(5, 5, causal=True, padding=torch.tensor([[1, 1, 0, 0, 1]]))
    assert visible.count.tolist() == [[1, 2, 0, 0, 3]]
    assert visible.spans is None
    assert visible.causal_spans is None


def test_an_entry_of_one_mask_for_the_whole_batch_is_that_mask() -> None:
    for padding in ([[True, True, False, False]], [[True, False, True, True]]):
        visible = Visible.build(4, 4, padding=torch.tensor(padding))
        assert torch.equal(visible.entry(1).mask(), written_out(4, 4, False, None, None, padding))


def test_hiding_twice_hides_what_either_hides() -> None:
    first, second = torch.tensor([[1, 0, 1, 1, 1]]), torch.tensor([[1, 1, 1, 0, 1]])
    visible = Visible.build(5, 5, padding=first).without(second)
    assert torch.equal(visible.mask(), Visible.build(5, 5, padding=first & second).mask())


@pytest.mark.parametrize("holes", [[[True, True, True, True]], [[True, False, True, True]]], ids=["no holes", "holes"])
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_past_the_last_key_sees_nothing(holes: Padding, causal: bool) -> None:
    visible = Visible.build(2, 4, causal=causal, window=1, offset=5, padding=torch.tensor(holes))
    assert visible.count.tolist() == [[0, 0]]
    assert not bool(visible.mask().any())


@pytest.mark.parametrize("window", [1, 3, 20])
def test_a_rule_of_a_sliding_window_becomes_runs(window: int) -> None:
    keys = torch.arange(9)

    def rule(rows: Tensor) -> Tensor:
        own = rows[None, :, None] + 2
        return (keys <= own) & (keys > own - window)

    visible = Visible.of_mask(rule, 7, 9, torch.arange(7) + 2)
    assert torch.equal(visible.mask(), written_out(7, 9, True, window, 2))
    assert visible.position.tolist() == [2, 3, 4, 5, 6, 7, 8]


def test_a_rule_of_packed_sequences_becomes_runs() -> None:
    packed = torch.tensor([[0, 0, 0, 1, 1, 2], [0, 1, 1, 1, 1, 1]])

    def rule(rows: Tensor) -> Tensor:
        return packed[:, rows, None] == packed[:, None, :]

    visible = Visible.of_mask(rule, 6, 6, torch.arange(6))
    assert visible.start.tolist() == [[0, 0, 0, 3, 3, 5], [0, 1, 1, 1, 1, 1]]
    assert visible.stop.tolist() == [[3, 3, 3, 5, 5, 6], [1, 6, 6, 6, 6, 6]]
    assert visible.count.tolist() == [[3, 3, 3, 2, 2, 1], [1, 5, 5, 5, 5, 5]]
    assert visible.spans is None


@SETTINGS
@given(runs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted), min_size=1, max_size=5))
def test_a_rule_of_any_one_run_a_row_is_kept(runs: list[list[int]]) -> None:
    mask = torch.tensor([[[first <= key < last for key in range(6)] for first, last in runs]])
    visible = Visible.of_mask(lambda rows: mask[:, rows], len(runs), 6, torch.arange(len(runs)))
    assert torch.equal(visible.mask(), mask)
    assert visible.count.tolist() == [[last - first for first, last in runs]]


def test_a_rule_is_asked_for_a_few_rows_at_a_time() -> None:
    keys, asked = torch.arange(2**22), []

    def rule(rows: Tensor) -> Tensor:
        asked.append(rows.tolist())
        return (keys <= rows[None, :, None] + 7) & (keys > 2)

    visible = Visible.of_mask(rule, 6, 2**22, torch.arange(6))
    assert asked == [[0, 1, 2, 3], [4, 5]]
    assert visible.start.tolist() == [[3] * 6]
    assert visible.stop.tolist() == [[8, 9, 10, 11, 12, 13]]


def test_keys_that_no_row_sees_do_not_part_a_run() -> None:
    mask = torch.tensor([[[True, False, False, False], [True, False, True, False], [False, False, True, True]]])
    hidden = torch.tensor([[False, True, False, False]])
    visible = Visible.of_mask(lambda rows: mask[:, rows], 3, 4, torch.arange(3), hidden)
    assert torch.equal(visible.mask(), mask)
    assert visible.count.tolist() == [[1, 2, 2]]


def test_a_rule_with_two_runs_in_a_row_is_refused() -> None:
    sinks_and_window = torch.tensor([[[True, True, False], [True, False, True]]])
    with pytest.raises(BadInput, match="several separate runs of keys; lengthwise needs one run a row"):
        Visible.of_mask(lambda rows: sinks_and_window[:, rows], 2, 3, torch.arange(2))


@pytest.mark.parametrize("first", [-20, -3, 0, 2, 30])
@pytest.mark.parametrize("size", [0, 1, 4, 50])
def test_a_cut_run_holds_the_keys_of_both(first: int, size: int) -> None:
    """Cut at `first` keys from the row, `size` keys long."""
    for name, case in CASES.items():
        own = case.visible.position + first
        cut = case.visible.within(own, own + size)
        for (entry, place), keys in zip(case.rows(), keys_of(cut, case), strict=True):
            kept = range(place + first, place + first + size)
            assert keys == {j for j in case.seen(entry, place) if j in kept and j not in case.hidden}, name
        assert bool((cut.start >= 0).all() & (cut.start <= cut.stop).all() & (cut.stop <= case.keys).all())
        counted = torch.tensor([len(keys) for keys in keys_of(cut, case)])
        assert torch.equal(cut.count.flatten(), counted)


def test_runs_of_32_bits_are_counted_by_indices_of_64() -> None:
    """PyTorch before 2.8 takes no others."""
    seen = Visible.build(5, 5, causal=True, padding=torch.tensor([[True, False, True, True, False]]))
    runs = (seen.start, seen.stop, seen.position, seen.hidden)

    def count(start: Tensor, stop: Tensor, position: Tensor, hidden: Tensor) -> Tensor:
        return Visible(start.int(), stop.int(), position.int(), 5, hidden).count

    graph = make_fx(count)(*runs)
    assert torch.equal(graph(*runs), seen.count)
    gathered = [node.args[2].meta["val"] for node in graph.graph.nodes if node.target is torch.ops.aten.gather.default]
    assert [index.dtype for index in gathered] == [torch.int64] * 2


@pytest.mark.parametrize("low", [None, -99, -3, 0, 2])
@pytest.mark.parametrize("high", [None, -4, 0, 1, 99])
def test_a_row_known_here_is_cut_as_any_other(low: int | None, high: int | None) -> None:
    known, asked = Visible.one_row(0, 9, 8, 9), Visible.build(1, 9, causal=True)
    assert (known.is_full, known.full_from, known.run) == (True, 8, asked.run)
    cut, expected = known.around(low, high), asked.around(low, high)
    assert cut.row == (int(expected.start), int(expected.stop), 8)
    assert (cut.start.tolist(), cut.stop.tolist()) == (expected.start.tolist(), expected.stop.tolist())
    assert (cut.is_full, cut.full_from, cut.run) == (expected.is_full, expected.full_from, expected.run)
    assert cut.sees_some == expected.sees_some
    if cut.sees_some:
        assert [place.tolist() for place in cut.places] == [place.tolist() for place in expected.places]


def test_rows_that_see_different_keys_have_no_run_in_common() -> None:
    padded = Visible.build(1, 5, causal=True, padding=torch.tensor([[False, True, True, True, True], [True] * 5]))
    assert padded.run is None
    assert padded.entry(0).run == (1, 5)
    assert Visible.build(1, 5, causal=True, padding=torch.tensor([[True, False, True, True, True]])).run is None
