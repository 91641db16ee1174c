"""Texts and lengths as they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.common.text import parse_lengths, read_texts, shipped_prose
from lengthwise.errors import BadInput


def test_the_shipped_prose_is_long_plain_and_without_digits() -> None:
    prose = shipped_prose()
    assert len(prose) > 100_000
    assert prose.isascii()
    assert not any(letter.isdigit() for letter in prose)
    # Three texts, none of them twice
    assert len({prose[start : start + 200] for start in range(0, len(prose), 200)}) == -(-len(prose) // 200)


@pytest.mark.parametrize(
    ("given", "lengths"),
    [
        (600, [600]),
        ((600, 64), [600, 64]),
        (range(2, 4), [2, 3]),
        (np.int64(600), [600]),
        (np.array([600, 64]), [600, 64]),
        (torch.tensor(600), [600]),
        (torch.tensor([600, 64]), [600, 64]),
        ((), []),
    ],
)
def test_lengths_are_one_or_several_whole_numbers(given: Any, lengths: list[int]) -> None:
    found = parse_lengths(given)
    assert found == lengths
    assert all(type(length) is int for length in found)


@pytest.mark.parametrize("given", [600.0, "15000", True, [64, 600.0], ["64"], [True], None, [[64]], np.bool_(True)])
def test_what_is_no_length_is_refused_in_one_line(given: Any) -> None:
    with pytest.raises(BadInput, match=r"^a length is a whole number of tokens, not .*$"):
        parse_lengths(given)
    for odd in (torch.tensor(600.0), torch.tensor(True), torch.tensor([True])):
        with pytest.raises(BadInput, match="a length is a whole number of tokens"):
            parse_lengths(odd)


def test_a_length_beyond_all_models_is_refused_at_once() -> None:
    assert parse_lengths(100_000_000) == [100_000_000]
    with pytest.raises(
        BadInput, match=r"^a length of 9,999,999,999,999 tokens is beyond all models; give at most 100,000,000$"
    ):
        parse_lengths([512, 9_999_999_999_999])


@pytest.mark.parametrize("length", [0, -5])
def test_a_length_of_no_tokens_is_refused(length: int) -> None:
    with pytest.raises(BadInput, match=rf"^a length must be at least 1 token, not {length}$"):
        parse_lengths(length)


def test_texts_are_read_one_after_the_other(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes("früh".encode())
    second.write_bytes(b"late")
    assert read_texts([first, str(second)]) == "früh\n\nlate"


def test_a_text_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read the text file .*gone\.txt: No such file"):
        read_texts([tmp_path / "gone.txt"])
    with pytest.raises(BadInput, match=r"cannot read the text file .*: Is a directory"):
        read_texts([tmp_path])


def test_a_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("früh".encode("latin-1"))
    with pytest.raises(BadInput, match=r"latin\.txt is not UTF-8 text"):
        read_texts([path])
