"""Token sequences of a wanted length."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import ByT5Tokenizer

from lengthwise.common.sequences import cut_rows, long_sequences, short_sequences, special_tokens, token_rows
from lengthwise.common.text import shipped_prose
from lengthwise.errors import BadInput

EOS = 1


class Letters:
    """A token a character, between whatever special tokens it is given."""

    def __init__(self, before: list[int], after: list[int]) -> None:
        self.before, self.after = before, after

    def __call__(self, text: str, add_special_tokens: bool = True, **_: Any) -> SimpleNamespace:
        ids = [ord(letter) for letter in text]
        return SimpleNamespace(input_ids=self.before + ids + self.after if add_special_tokens else ids)


PLAIN = Letters([], [])
FRAMED = Letters([901, 902], [903])


def counting(length: int) -> str:
    """A text whose every token differs, so that a cut tells where it was made."""
    return "".join(chr(1000 + index) for index in range(length))


def test_special_tokens_are_found_on_either_side() -> None:
    assert special_tokens(ByT5Tokenizer()) == ([], [EOS])
    assert special_tokens(FRAMED) == ([901, 902], [903])
    assert special_tokens(PLAIN) == ([], [])


@pytest.mark.parametrize("length", [1000, 20000])
def test_long_sequences_have_exactly_the_length_and_end_as_the_tokenizer_ends(length: int) -> None:
    tokenizer = ByT5Tokenizer()
    prose = shipped_prose()
    sequences = long_sequences(tokenizer, prose, length, count=3, seed=0)
    assert sequences.shape == (3, length)
    assert sequences[:, -1].tolist() == [EOS] * 3
    for sequence in sequences:
        body = tokenizer.decode(sequence[:-1])
        assert len(body) == length - 1
        assert body in prose


def test_long_sequences_stand_between_the_special_tokens() -> None:
    sequences = long_sequences(FRAMED, counting(50), 10, count=4, seed=3)
    assert sequences[:, :2].tolist() == [[901, 902]] * 4
    assert sequences[:, -1].tolist() == [903] * 4
    for sequence in sequences[:, 2:-1].tolist():
        assert sequence == list(range(sequence[0], sequence[0] + 7))


def test_long_sequences_start_each_in_its_own_share_of_the_text() -> None:
    # 1,000 places to start from, four sequences: one in each quarter
    for seed in range(20):
        starts = long_sequences(PLAIN, counting(1100), 100, count=4, seed=seed)[:, 0] - 1000
        assert (starts // 250).tolist() == [0, 1, 2, 3]


def test_long_sequences_depend_on_the_seed_alone() -> None:
    first, again, other = (long_sequences(PLAIN, counting(1100), 100, count=3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_text_of_just_the_length_serves() -> None:
    sequences = long_sequences(FRAMED, counting(7), 10, count=2, seed=0)
    assert sequences.tolist() == [[901, 902, *range(1000, 1007), 903]] * 2


def test_a_text_too_short_is_refused() -> None:
    with pytest.raises(BadInput, match=r"the text has 6 tokens, fewer than the length 10; give a longer text"):
        long_sequences(FRAMED, counting(6), 10, count=2, seed=0)


def test_short_sequences_have_the_length_and_their_own_special_tokens() -> None:
    long = long_sequences(FRAMED, counting(500), 103, count=2, seed=0)
    short = short_sequences(FRAMED, long, 13)
    # 100 tokens inside hold 10 bodies of 10; 16 sequences over 2 leave 8 for each
    assert short.shape == (16, 13)
    assert short.dtype == long.dtype
    assert short[:, :2].tolist() == [[901, 902]] * 16
    assert short[:, -1].tolist() == [903] * 16


def test_short_sequences_are_cut_from_the_long_ones_without_overlap() -> None:
    long = long_sequences(FRAMED, counting(10000), 103, count=2, seed=0)
    short = short_sequences(FRAMED, long, 13)[:, 2:-1]
    for sequence in short.tolist():
        assert sequence == list(range(sequence[0], sequence[0] + 10))
    assert len(set(short.flatten().tolist())) == short.numel()
    assert torch.isin(short, long[:, 2:-1]).all()


def test_short_sequences_reach_from_the_first_token_to_the_last() -> None:
    long = long_sequences(PLAIN, counting(100), 100, count=1, seed=0)
    starts = short_sequences(PLAIN, long, 20, most=3)[:, 0] - 1000
    assert starts.tolist() == [0, 40, 80]


def test_short_sequences_are_at_most_as_many_as_asked_for_and_at_least_one_each() -> None:
    long = long_sequences(PLAIN, counting(1000), 100, count=3, seed=0)
    assert len(short_sequences(PLAIN, long, 10, most=7)) == 6
    assert len(short_sequences(PLAIN, long, 10, most=1)) == 3
    assert len(short_sequences(PLAIN, long, 60)) == 3


def test_short_sequences_as_long_as_the_long_ones_are_the_long_ones() -> None:
    long = long_sequences(FRAMED, counting(1000), 100, count=3, seed=0)
    assert torch.equal(short_sequences(FRAMED, long, 100), long)


def test_short_sequences_longer_than_the_long_ones_are_refused() -> None:
    long = long_sequences(FRAMED, counting(1000), 100, count=3, seed=0)
    with pytest.raises(BadInput, match="101"):
        short_sequences(FRAMED, long, 101)


@pytest.mark.parametrize("length", [0, 2])
def test_a_long_length_below_the_special_tokens_is_refused(length: int) -> None:
    with pytest.raises(BadInput, match=str(length)):
        long_sequences(FRAMED, counting(1000), length, count=3, seed=0)


@pytest.mark.parametrize("length", [2, 3])
def test_a_short_length_with_no_room_for_text_is_refused(length: int) -> None:
    long = long_sequences(FRAMED, counting(1000), 100, count=3, seed=0)
    with pytest.raises(BadInput, match=str(length)):
        short_sequences(FRAMED, long, length)


ROWS = [[5, 6, 7, 8], [9, 10, 11, 12]]
PADDED = {"input_ids": [[5, 6, 7, 8, 0], [9, 10, 0, 0, 0]], "attention_mask": [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]}


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        torch.tensor(ROWS),
        torch.tensor(ROWS, dtype=torch.int32).numpy(),
        [torch.tensor(row) for row in ROWS],
        {"input_ids": torch.tensor(ROWS)},
        [{"input_ids": row, "label": 1} for row in ROWS],
        (row for row in ROWS),
    ],
)
def test_token_ids_are_taken_as_they_come(given: Any) -> None:
    assert [row.tolist() for row in token_rows(given, 13)] == ROWS


def test_datasets_are_taken_as_they_are() -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict(PADDED)
    for given in (rows, rows.with_format("torch"), rows.to_iterable_dataset(), rows[:2], PADDED):
        assert [row.tolist() for row in token_rows(given, 13)] == [[5, 6, 7, 8], [9, 10]]


def test_an_endless_dataset_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.common.sequences.MOST_ROWS", 3)
    assert len(token_rows(iter(lambda: [1, 2], None), 13)) == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.tensor([5, 6]), r"tensor of \[sequences, tokens\].*one of their rows has shape \[\] and holds int64"),
        (torch.ones(2, 3, 4, dtype=torch.long), r"shape \[3, 4\]"),
        (torch.ones(2, 3), "holds float32"),
        ([[True, False]], "holds bool"),
        ("a text", "one of their rows is 'a'"),
        ([{"text": "a"}], "one of their rows is 'None'"),
        ([[1, [2, 3]]], "one of their rows is"),
        (7, "not int"),
        ({"text": ["a"]}, "not dict"),
        ({"input_ids": [[1, 2]], "attention_mask": [[1]]}, r"shape \[2\]"),
        ({"input_ids": [[1], [2]], "attention_mask": [[1]]}, "different numbers of rows"),
        ([], "no token"),
        ([[]], "no token"),
        ([[1, 13]], "token 13, and the model knows 0 to 12 only"),
        ([[1], [-100]], "token -100, and the model knows 0 to 12 only"),
    ],
)
def test_what_is_no_row_of_token_ids_is_refused_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message) as told:
        token_rows(given, 13)
    assert "\n" not in str(told.value)


def test_rows_are_cut_into_stretches_that_do_not_overlap() -> None:
    rows = [torch.arange(0, 25), torch.arange(100, 108), torch.arange(200, 210)]
    cut = cut_rows(rows, 10, 3, seed=0)
    assert sorted(cut[:, 0].tolist()) == [0, 10, 200]
    assert (cut.diff(dim=1) == 1).all()
    assert {int(cut_rows(rows, 10, 1, seed)[0, 0]) for seed in range(20)} == {0, 10, 200}
    with pytest.raises(BadInput, match="hold 0 stretches of 30 tokens, and 1 are asked for; the longest sequence has 25"):
        cut_rows(rows, 30, 1, seed=0)
